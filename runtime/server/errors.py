"""Why a request is refused, in one line that names the field, the problem and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LONGEST = 60
"""Characters of a value that a line shows."""


class RequestError(ValueError):
    """A request cannot be met; the message names the field, the problem and the remedy in one line.

    Args:
        message: The line.
        status: Of HTTP: 422 for what is wrong in itself, 404 for what is not there, 409 for what comes at
            the wrong time.
    """

    def __init__(self, message: str, status: int = 422) -> None:
        """Keep the status beside the message."""
        super().__init__(message)
        self.status = status


class NotYetError(RequestError):
    """A job is not ready, but it may be without another word about it."""

    def __init__(self, message: str) -> None:
        """Refuse as what comes too early."""
        super().__init__(message, 409)


def refusal(error: Mapping[str, Any]) -> RequestError:
    """Return what pydantic finds wrong in a request as an error of one line.

    >>> print(refusal({"type": "missing", "loc": ("body", "degree"), "msg": "Field required"}))
    degree: is missing; give it
    """
    source, *rest = error["loc"]
    where = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in rest).removeprefix(".")
    where, message = where or source, error["msg"]
    match error["type"]:
        case "json_invalid":
            return RequestError(f"body: is not JSON ({error['ctx']['error']}); send an object", 400)
        case "missing":
            return RequestError(f"{where}: is missing; give it")
        case "extra_forbidden":
            return RequestError(f"{where}: is not known; leave it out")
        case "value_error":
            return RequestError(f"{where}: {error['ctx']['error']}")
    shown = repr(error["input"])
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    return RequestError(f"{where}: {shown} is wrong; {message[0].lower()}{message[1:]}")
