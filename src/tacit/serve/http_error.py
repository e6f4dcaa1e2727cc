"""What a client did wrong, or what went wrong for it, in OpenAI's error shape."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from tacit.errors import TacitError

_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}


@dataclass(eq=False)
class HttpError(TacitError):
    """An HTTP status with a sentence for the client. The sentence never holds a secret."""

    status: int
    message: str
    _: KW_ONLY
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    said: Any = None
    """An object to send instead, as another server worded it."""

    def __str__(self) -> str:
        return self.message

    def about(self, param: str) -> "HttpError":
        """The same problem of a field that the client knows by another name."""
        told = self.message.replace(f"`{self.param}`", f"`{param}`")
        return replace(self, message=told, param=param)

    def body(self) -> Any:
        if isinstance(self.said, dict) and self.said:
            return self.said
        usual = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = _KINDS.get(self.status, usual)
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def retry_later(status: int, message: str, seconds: int, code: str) -> HttpError:
    """A refusal that says when to come back."""
    return HttpError(status, message, code=code, headers={"retry-after": str(seconds)})
