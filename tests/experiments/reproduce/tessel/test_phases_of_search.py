"""Fig. 10: warmup and cooldown have the blocks of Tessel's own micro-batches, not of our modulo stages."""

from __future__ import annotations

import pytest

from experiments.reproduce.tessel.search_times import completions
from placements.shapes import SHAPES
from schedsearch.tessel import tessel


@pytest.mark.parametrize(("shape", "before", "after"), [("v_shape", 6, 18), ("k_shape", 8, 12)])
def test_phases_have_the_blocks_of_tessels_micro_batches(shape: str, before: int, after: int) -> None:
    """A search that is not lazy would complete only the few repetends that it finds."""
    placement, found = SHAPES[shape](4), list[dict[str, int]]()
    tessel(placement, 6, max_in_flight=6, on_repetend=lambda each, _: found.append(dict(each)))
    phases = completions(placement, found[-1], 60.0)
    counts = [num_blocks for _, num_blocks in phases.values()]
    assert counts == [before, after]
    assert sum(counts) == max(found[-1].values()) * len(placement.blocks)
    assert 1 <= len(found) <= 6
