"""What is answered to a request that cannot be met."""

from __future__ import annotations


class RequestError(ValueError):
    """A request cannot be met; the message names the field, the problem and the remedy in one line.

    Args:
        message: The line.
        status: Of HTTP: 422 for what is wrong in itself, 404 for what is not there, 409 for what comes at
            the wrong time, 413 for what is too large.
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
