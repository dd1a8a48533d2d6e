"""Best layouts: equal to brute force over all layouts, within memory, and with true bounds."""

from __future__ import annotations

import itertools
import math
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
from made_up_layers import made_up_layers
from one_line_errors import raises_line

import schedsearch
from placements.stages.layout_stages import place_layout
from placements.trainers.layers import ModelLayers
from placements.trainers.layout import LayoutError, PipelineLayout, layout_of_sizes
from placements.trainers.megatron_layout import MegatronPipeline, check_megatron, read_notation
from schedsearch.baselines import interleaved_one_f_one_b, one_f_one_b
from schedsearch.layouts import layouts
from schedsearch.layouts.layout_model import LayoutProblem, Sizes
from schedsearch.layouts.layout_search import LayoutSearch, best_layout
from schedsearch.layouts.layouts import DOES_NOT_FIT, GIVEN, NOT_APPLICABLE, PROVED
from schedsearch.metrics import peak_memory
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.validate import validate


def all_layouts(model: ModelLayers, num_devices: int, num_chunks: int) -> Iterator[PipelineLayout]:
    """Yield every layout without an empty stage that Megatron-LM accepts."""
    number, num_stages = len(model.parts), num_devices * num_chunks
    for ends in itertools.combinations(range(1, number), num_stages - 1):
        sizes = tuple(b - a for a, b in itertools.pairwise((0, *ends, number)))
        layout = layout_of_sizes(num_devices, model.parts, sizes)
        try:
            yield check_megatron(layout, model.num_layers, model.num_mtp)
        except LayoutError:
            continue


def makespan_ms(layout: PipelineLayout, model: ModelLayers, m: int, transfer_ms: float = 0.0) -> float:
    placement = place_layout(layout, model, None, transfer_ms).placement
    make = one_f_one_b if layout.num_chunks == 1 else interleaved_one_f_one_b
    return placement.ms(make(placement, m).makespan)


@pytest.mark.parametrize(
    ("model", "num_devices", "num_chunks", "m", "transfer_ms"),
    [
        (made_up_layers(9), 3, 1, 8, 0.0),
        (made_up_layers(9, slower=0.07), 4, 1, 6, 0.25),
        (made_up_layers(7, num_mtp=2), 2, 2, 4, 0.0),
        (made_up_layers(8, slower=-0.05), 2, 2, 6, 0.5),
    ],
)
def test_nothing_is_faster_than_the_best(
    model: ModelLayers, num_devices: int, num_chunks: int, m: int, transfer_ms: float
) -> None:
    (row,) = schedsearch.layout(model, num_devices, m, num_chunks, transfer_ms=transfer_ms).rows
    layouts = all_layouts(model, num_devices, num_chunks)
    best_ms = min(makespan_ms(layout, model, m, transfer_ms) for layout in layouts)
    assert row.status == PROVED
    assert row.iteration_ms == row.bound_ms == best_ms
    assert row.pipeline is not None
    assert makespan_ms(row.pipeline, model, m, transfer_ms) == row.iteration_ms


@pytest.mark.parametrize(
    ("num_devices", "num_chunks", "slower", "num_mtp"), [(4, 1, 0.013, 1), (3, 2, 0.0, 0)]
)
def test_bounds_of_a_larger_search_are_true(
    num_devices: int, num_chunks: int, slower: float, num_mtp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no list of all layouts: neighbours, paths and the solver have to agree with it."""
    model = made_up_layers(10, num_mtp=num_mtp, slower=slower)
    monkeypatch.setattr("schedsearch.layouts.layout_search._MOST_LISTED", 0)
    (row,) = schedsearch.layout(model, num_devices, 6, num_chunks, work_limit=2.0).rows
    best_ms = min(makespan_ms(layout, model, 6) for layout in all_layouts(model, num_devices, num_chunks))
    assert row.bound_ms is not None and row.iteration_ms is not None
    assert row.bound_ms <= best_ms + 1e-9
    assert best_ms <= row.iteration_ms <= 1.02 * best_ms
    assert (row.status == PROVED) == (row.bound_ms == row.iteration_ms)


def test_memory_is_kept_and_is_the_least_that_there_is() -> None:
    model = made_up_layers(10)
    peaks = []
    for layout in all_layouts(model, 3, 1):
        placement = place_layout(layout, model).placement
        peaks.append(placement.mib(int(peak_memory(one_f_one_b(placement, 6)).max())))
    least = min(peaks)
    (row,) = schedsearch.layout(model, 3, 6, 1, memory_mib=least).rows
    assert row.peak_memory_mib == least
    fitting = [
        makespan_ms(layout, model, 6)
        for layout, peak in zip(all_layouts(model, 3, 1), peaks, strict=True)
        if peak <= least
    ]
    assert row.iteration_ms == min(fitting)
    assert row.schedule_found is not None
    validate(row.schedule_found)
    (row,) = schedsearch.layout(model, 3, 6, 1, memory_mib=least - 1).rows
    assert (row.status, row.layout, row.iteration_ms) == (DOES_NOT_FIT, "", None)
    assert schedsearch.layout(model, 3, 6, 1, memory_mib=least - 1).best is None


def test_the_even_layout_and_ones_own_stand_beside_the_best() -> None:
    model = made_up_layers(16)
    layout = read_notation("Et*3|t*5|t*4|t*4L", 4)
    layouts = schedsearch.layout(model, 4, 8, [1, 2], given={"own": MegatronPipeline(layout)})
    for row in layouts.rows:
        assert row.even_ms is not None and row.iteration_ms is not None
        assert row.iteration_ms < row.even_ms
    given = layouts.given["own"]
    assert (given.status, given.iteration_ms) == (GIVEN, makespan_ms(layout, model, 8))
    assert layouts.rows[0].iteration_ms is not None and given.iteration_ms is not None
    assert layouts.rows[0].iteration_ms <= given.iteration_ms
    assert layouts.best == min(layouts.rows, key=lambda row: row.iteration_ms or 0)
    uneven = schedsearch.layout(made_up_layers(15), 4, 8, 1).rows[0]
    assert uneven.even_ms is None, "15 layers are not divisible by 4"


def test_what_a_schedule_has_no_layout_for_is_said() -> None:
    model = made_up_layers(4)
    layouts = schedsearch.layout(model, 2, 4, [1, 4])
    assert [row.status for row in layouts.rows] == [PROVED, NOT_APPLICABLE]
    assert layouts.rows[1].note == ("num_chunks: 8 stages are more than the 6 pieces of the model; use fewer")
    few = schedsearch.layout(model, 3, 2, 2).rows[0]
    assert few.note.startswith("num_micro_batches: interleaved 1F1B needs at least 3")


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 4, 1), "num_devices: 0 is not a whole number above 0"),
        ((2, 0, 1), "num_micro_batches: 0 is not"),
        ((2, 4, []), r"num_chunks: \[\] is not"),
        ((2, 4, [1, 1.5]), "num_chunks: 1.5 is not"),
    ],
)
def test_wrong_numbers_are_refused(numbers: tuple[int, int, int], message: str) -> None:
    with pytest.raises(LayoutError, match=f"^{message}"):
        schedsearch.layout(made_up_layers(4), *numbers)


def test_layouts_of_another_model_are_refused() -> None:
    model = made_up_layers(4)
    with raises_line(LayoutError, match="^own: layout: has 6 layers and 0 of MTP, and the given layers 4"):
        schedsearch.layout(model, 2, 4, 1, given={"own": MegatronPipeline(read_notation("Et*3|t*3L", 2))})
    with pytest.raises(LayoutError, match="^own: has 1 pipeline ranks, not 2; give num_devices=1"):
        schedsearch.layout(model, 2, 4, 1, given={"own": MegatronPipeline(read_notation("Et*4L", 1))})


def test_a_limit_of_work_is_of_all_numbers_of_chunks_together(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []

    def counted(problem: LayoutProblem, starts: list[Sizes], work_limit: float) -> LayoutSearch:
        shares.append(work_limit)
        return replace(best_layout(problem, starts, 0.01), work=2.0)

    monkeypatch.setattr(layouts, "best_layout", counted)
    schedsearch.layout(made_up_layers(9), 2, 4, (1, 2, 3), work_limit=9.0)
    assert shares == [3.0, 3.5, 5.0]


def test_ctrl_c_leaves_layouts_that_are_no_slower_than_the_even_ones() -> None:
    with INTERRUPTS.answered():
        signal.raise_signal(signal.SIGINT)
        layouts = schedsearch.layout(made_up_layers(40), 4, 8, (1, 2))
    assert layouts.interrupted
    for row in layouts.rows:
        assert row.iteration_ms is not None and row.iteration_ms <= (row.even_ms or math.inf)
