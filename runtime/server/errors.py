"""What is answered to a request that cannot be met."""

from __future__ import annotations


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
