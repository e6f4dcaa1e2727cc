"""What a client did wrong, or what went wrong for it, in OpenAI's error shape."""

from collections.abc import Mapping
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


class Problem(TacitError):
    """An HTTP status with a sentence for the client. The sentence never holds a secret."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def about(self, param: str) -> "Problem":
        """The same problem of a field that the client knows by another name."""
        told = str(self).replace(f"`{self.param}`", f"`{param}`")
        return Problem(self.status, told, param=param, code=self.code, headers=self.headers)

    def body(self) -> Any:
        usual = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = _KINDS.get(self.status, usual)
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def retry_later(status: int, message: str, seconds: int, code: str) -> Problem:
    """A refusal that says when to come back."""
    return Problem(status, message, code=code, headers={"retry-after": str(seconds)})
