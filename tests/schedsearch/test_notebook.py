"""Results in a notebook: names by hand, tables, figures, files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from modes_and_streams import communicated, offloaded, recomputed

import schedsearch
from placements.forms.texts import write_json
from placements.gpus import GPUS
from placements.hardware import modelled_profile
from placements.shapes import k_shape, v_shape
from placements.trainers.layers import ModelLayer, ModelLayers
from schedsearch.core.problem import Problem
from schedsearch.energy import Frontier
from schedsearch.figures.canvas import Figure
from schedsearch.searches.search import find


def test_every_name_of_the_front_door_is_there() -> None:
    for name in schedsearch.__all__:
        assert not isinstance(getattr(schedsearch, name), ModuleType)
        assert name in dir(schedsearch)
    with pytest.raises(AttributeError, match="has no attribute 'serach'"):
        _ = schedsearch.serach


def test_shapes_take_milliseconds_or_ticks() -> None:
    assert schedsearch.v_shape(3, 1, 2) == v_shape(3, 1, 2)
    assert schedsearch.x_shape(4, split_backward=True).name == "x_shape"
    memory = {"activation_mib": 9, "memory_mib": [30, 20]}
    measured = schedsearch.v_shape(2, forward_ms=[1.5, 2], backward_ms=4, **memory)
    assert [measured.ms(measured.by_name[name].time) for name in ("F0", "F1", "B0")] == [1.5, 2, 4]
    assert [measured.mib(units) for units in measured.memory or ()] == [30, 20]
    cut = schedsearch.loop_shape(2, forward_ms=4, backward_ms=8)
    assert [cut.ms(cut.by_name[name].time) for name in ("F0", "F3", "B3")] == [2, 2, 4]
    halves = schedsearch.wave_shape(2, forward_ms=4, input_gradient_ms=4, weight_gradient_ms=2)
    assert {str(block.kind) for block in halves.blocks} == {"F", "I", "W"}


Shown = Callable[[Any], list[type]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Return the types of a result's outputs in a notebook."""
    types: list[type] = []
    monkeypatch.setattr("schedsearch.notebook.shows_pictures", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda value: types.append(type(value)))

    def show(result: Any) -> list[type]:
        types.clear()
        result._ipython_display_()
        return list(types)

    return show


def test_a_schedule_shows_itself(tmp_path: Path, shown: Shown) -> None:
    schedule = schedsearch.one_f_one_b(schedsearch.v_shape(2, forward_ms=1.5, backward_ms=3), 3)
    frame = schedule.to_frame()
    assert list(frame.columns) == ["device", "block", "kind", "micro_batch", "start_ms", "end_ms"]
    assert len(frame) == 12 and frame.end_ms.max() == schedule.placement.ms(schedule.makespan) == 18
    assert frame.iloc[0].tolist() == [0, "F0", "F", 0, 0.0, 1.5]
    assert schedsearch.read_schedule(schedule.save(tmp_path / "schedule.json")) == schedule
    assert schedule.plot().axes[0].get_title(loc="left") == "v_shape: 18 ms, 25.0% bubble"
    assert shown(schedule) == [Figure, pd.DataFrame]


def test_a_search_shows_itself(tmp_path: Path, shown: Shown) -> None:
    placement = schedsearch.v_shape(2, forward_ms=1, backward_ms=2, activation_mib=5, memory_mib=10)
    result = schedsearch.search(placement, 4)
    (row,) = result.to_frame().to_dict("records")
    assert row["proved"] == "period and makespan proved"
    assert row["repetend_period_ms"] == row["period_bound_ms"] == 3
    assert (row["makespan_ms"], row["makespan_bound_ms"], row["peak_memory_mib"]) == (15, 15, 10)
    assert schedsearch.Answer.load(result.save(tmp_path / "found.json")) == result
    assert schedsearch.Schedule.load(tmp_path / "found.json") == result.schedule
    assert shown(result) == [Figure, pd.DataFrame]
    unknown = schedsearch.search(v_shape(2), 2).to_frame()
    assert math.isnan(unknown.peak_memory_mib[0])
    with pytest.raises(ValueError, match="schedule: there is none to draw"):
        schedsearch.Answer(schedsearch.Status.INFEASIBLE, None, None, 1.0, 1, 1, 0, 0.0).plot()


def test_a_comparison_shows_itself(tmp_path: Path, shown: Shown) -> None:
    stages = schedsearch.stages_of(2, forward_ms=1, backward_ms=2, activation_mib=5, memory_mib=10)
    comparison = schedsearch.compare(stages, ["one_f_one_b", "gpipe"], 4)
    frame = comparison.to_frame().set_index("schedule")
    assert frame.makespan_ms["one_f_one_b"] == 15
    assert frame.proved["gpipe"] == "does not fit"
    assert len(comparison.plot().axes) == 1
    again = schedsearch.Comparison.load(comparison.save(tmp_path / "compare.json"))
    assert again == comparison and again.rows[1].makespan_ms is None
    assert [row.solution for row in again.rows] == [row.solution for row in comparison.rows]
    assert shown(comparison) == [Figure, pd.DataFrame]
    assert shown(schedsearch.compare(stages, ["gpipe"], 4)) == [pd.DataFrame]


def test_layouts_show_themselves(shown: Shown) -> None:
    layers = tuple(
        ModelLayer(f"{kind} {i}", kind, forward, 2 * forward, 0, 0)
        for i, (kind, forward) in enumerate([("embedding", 1), *[("layer", 4)] * 6, ("loss", 8)])
    )
    layouts = schedsearch.layout(ModelLayers(layers), 2, 4, [1, 2])
    frame = layouts.to_frame().set_index("name")
    assert frame.layout["one_f_one_b"] == layouts.rows[0].layout
    assert list(frame.num_chunks) == [1, 2]
    assert len(layouts.plot().axes) == 2
    assert shown(layouts) == [Figure, pd.DataFrame]


def test_a_frontier_shows_itself(tmp_path: Path, shown: Shown) -> None:
    placement = schedsearch.v_shape(2, forward_ms=10, backward_ms=20)
    schedule = schedsearch.one_f_one_b(placement, 3)
    frontier = schedsearch.frontier(schedule, modelled_profile(placement, GPUS["a100"]), 10)
    frame = frontier.to_frame()
    assert frame.time_ms.is_monotonic_increasing and len(frame) == len(frontier.plans)
    assert frame.energy_j[0] == pytest.approx(frontier.plans[0].energy_mj / 1e3)
    assert Frontier.load(frontier.save(tmp_path / "frontier.json")).plans == frontier.plans
    assert shown(frontier)[0] is Figure


@pytest.mark.parametrize("method", ["modulo", "tessel", "time_optimal"])
def test_results_of_every_search_read_back(method: str, tmp_path: Path) -> None:
    answer = find(Problem(k_shape(2).with_memory(3), 4, method=method))
    assert answer.schedule is not None
    assert schedsearch.Answer.load(answer.save(tmp_path / "found.json")) == answer
    assert bool(answer.by_in_flight) == (method == "tessel")


def test_a_result_without_a_schedule_and_one_of_many_sizes_read_back(tmp_path: Path) -> None:
    result = schedsearch.search(schedsearch.m_shape(3).with_memory(3), 6, objectives=["period"])
    assert result.min_period is not None and len(result.tried) > 1
    none = replace(result, status=schedsearch.Status.UNKNOWN, schedule=None, repetend=None, reason="no time")
    for answer in (result, none):
        assert schedsearch.Answer.load(answer.save(tmp_path / "found.json")) == answer


def test_a_file_of_another_kind_is_told(tmp_path: Path) -> None:
    schedule = schedsearch.one_f_one_b(v_shape(2), 3)
    path = schedule.save(tmp_path / "schedule.json")
    assert schedsearch.Schedule.load(path) == schedule
    for kind in (schedsearch.Answer, schedsearch.Comparison, Frontier):
        with pytest.raises(ValueError, match=f"no {kind.__name__}; give a file that {kind.__name__}.save"):
            kind.load(path)
    with pytest.raises(ValueError, match="none.json: cannot be read"):
        Frontier.load(tmp_path / "none.json")
    saved = schedsearch.search(v_shape(2), 3, work_limit=1).save(path)
    write_json(path, json.loads(saved.read_text()) | {"period_bound": "a"})
    with pytest.raises(ValueError, match=r"schedule.json: period_bound: 'a' is not a number"):
        schedsearch.Answer.load(path)


def test_a_table_of_a_schedule_has_streams_and_modes_where_there_are_any() -> None:
    plain = ["device", "block", "kind", "micro_batch", "start_ms", "end_ms"]
    assert list(communicated().to_frame()) == [*plain, "stream"]
    table = offloaded(1.5).to_frame()
    assert list(table) == [*plain, "stream", "mode"]
    assert table[table["mode"] == "offload"][["block", "stream"]].to_numpy().tolist() == [
        ["O0", "copy_out"],
        ["I0", "copy_in"],
    ]
    slowed = table[(table.block == "F0") & (table.micro_batch == 1)]
    assert (slowed.end_ms - slowed.start_ms).tolist() == [5.0]
    table = recomputed().to_frame()
    assert list(table) == [*plain, "mode"]
    assert table.value_counts("mode").to_dict() == {"keep": 6, "recompute": 2}
