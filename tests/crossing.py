"""Programs that end only where nothing is shared: sends that cross."""

from __future__ import annotations

from placements import Block, Kind, Placement
from runtime.program.instructions import Programs, Receive, Run, Send


def _forward(name: str, device: int, *after: str) -> Block:
    return Block(name, Kind.F, (device,), 1, 0, after)


CROSSING = Programs(
    Placement(
        "crossing",
        2,
        (_forward("A", 0), _forward("B", 1), _forward("C", 0, "B"), _forward("D", 1, "A")),
    ),
    1,
    (
        (Run("A", 0), Send("A", "D", 0, 1), Receive("B", "C", 0, 1), Run("C", 0)),
        (Run("B", 0), Send("B", "C", 0, 0), Receive("A", "D", 0, 0), Run("D", 0)),
    ),
)
"""Both devices send before they post their receives."""
