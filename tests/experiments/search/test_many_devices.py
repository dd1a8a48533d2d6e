"""What the search command prints of very many devices."""

from __future__ import annotations

from experiments.search.search_step import _peaks
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b


def test_the_memory_of_many_devices_is_a_range() -> None:
    """The peaks of 512 devices filled a screen."""
    assert _peaks(one_f_one_b(v_shape(64).with_memory(99), 70), "MiB") == "1 to 64 of 99 MiB"
    assert _peaks(one_f_one_b(v_shape(4), 9), "MiB") == "4, 3, 2, 1 MiB"
