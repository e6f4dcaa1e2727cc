"""What a token engine asks of a request before it takes it on."""

from tacit.engine.base import Request
from tacit.errors import EngineError, PromptTooLong


def check_request(request: Request, model: str, context: int) -> None:
    """Refuse what cannot be served, in one sentence that says why."""
    if not request.prompt_ids:
        raise EngineError(f"{model}: a token engine needs prompt ids; see `encode`")
    if request.silence and not request.silence.ids:
        raise EngineError(f"{model}: a silence rule needs ids; see `silence_ids`")
    room = request.sampling.max_tokens
    marker = len(request.silence.ids) if request.silence else 0
    if room < max(1, marker):
        raise EngineError(f"{model}: max_tokens is {room}, but silence alone takes {marker} tokens")
    if len(request.prompt_ids) + room > context:
        raise PromptTooLong(
            f"{model}: a prompt of {len(request.prompt_ids)} tokens and max_tokens {room} "
            f"exceed the context of {context}",
            limit=context - room,
        )
