"""Output of the search command for very many devices."""

from __future__ import annotations

from experiments.search.search_step import memories
from placements.shapes import v_shape


def test_the_memory_of_many_devices_is_a_range() -> None:
    """The peaks of 512 devices filled a screen."""
    placement = v_shape(64).with_memory(99)
    assert memories(placement, range(1, 65), placement.memory) == "1 to 64 of 99 units of the placement"
    assert memories(placement, [4, 3, 2, 1]) == "4, 3, 2, 1 units of the placement"
