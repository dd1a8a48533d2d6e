"""Output of the search command for very many devices."""

from __future__ import annotations

from experiments.search.search_step import _peaks
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.metrics import peak_memory


def test_the_memory_of_many_devices_is_a_range() -> None:
    """The peaks of 512 devices filled a screen."""
    schedule = one_f_one_b(v_shape(64).with_memory(99), 70)
    assert _peaks(peak_memory(schedule).tolist(), schedule.placement.memory, "MiB") == "1 to 64 of 99 MiB"
    assert _peaks(peak_memory(one_f_one_b(v_shape(4), 9)).tolist(), None, "MiB") == "4, 3, 2, 1 MiB"
