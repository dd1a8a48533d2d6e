"""An event of a stream, which a test reaches by hand."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass
class FakeEvent:
    """An event, and when the stream reached it; None as long as it has not."""

    at_s: float | None = None

    def query(self) -> bool:
        return self.at_s is not None

    def synchronize(self) -> None:
        while self.at_s is None:
            time.sleep(0.001)

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.at_s is not None and end.at_s is not None
        return (end.at_s - self.at_s) * 1000
