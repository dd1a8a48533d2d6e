"""Results as tables of pandas, figures of matplotlib, files and in notebooks; see `schedsearch.results`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from placements.forms.texts import read_json, write_json
from schedsearch.comparison.rows import COLUMNS, Comparison
from schedsearch.core.answer import Answer
from schedsearch.device_span import device_spans
from schedsearch.energy import Frontier
from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.figures.canvas import display, shows_pictures
from schedsearch.figures.comparison import draw_timelines, title_of
from schedsearch.figures.frontier import draw_frontier
from schedsearch.figures.panels import CurvePoint, Panel, draw_panels
from schedsearch.figures.plan import draw_plan
from schedsearch.layouts.layouts import COLUMNS as LAYOUT_COLUMNS
from schedsearch.layouts.layouts import BestLayouts
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.planning.explanation import strategy_in_words
from schedsearch.planning.plans import PLAN_COLUMNS, Plans, capacities_gib
from schedsearch.robust.robust_search import RobustResult
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import read_result, read_schedule, result_to_dict, schedule_to_dict
from schedsearch.simulation.iterations import SimulatedIterations

_LONGEST_TABLE = 30
"""Rows that are shown below a figure."""

_MIN_INCHES, _INCHES_FOR_EACH = 6.0, 1.0
"""Minimum width of a figure of bars, and width for each schedule."""


def _unknown(result: object) -> TypeError:
    return TypeError(
        f"{type(result).__name__}: is not a result; give a Schedule, Answer, Frontier, Comparison, "
        "Plans, BestLayouts, SimulatedIterations or RobustResult"
    )


@singledispatch
def frame(result: object) -> pd.DataFrame:
    """Return a result as a table, with times in ms, memory in MiB and energy in J."""
    raise _unknown(result)


@frame.register
def _(result: Schedule) -> pd.DataFrame:
    """One row for each block on each of its devices, by device and start.

    With a column of streams where devices have several, and of modes where there are any.
    """
    placement = result.placement
    rows = []
    for device in range(placement.num_devices):
        for name, n in result.order(device):
            block = placement.by_name[name]
            times = placement.ms(result.start_of[name, n]), placement.ms(result.end_of[name, n])
            choice = placement.decision_of.get(name)
            mode = "" if choice is None else placement.decisions[choice].names[result.chosen[n][choice]]
            rows.append((device, name, str(block.kind), n, *times, block.stream, mode))
    columns = ["device", "block", "kind", "micro_batch", "start_ms", "end_ms", "stream", "mode"]
    left_out = ["stream"] * (not placement.has_streams) + ["mode"] * (not placement.decisions)
    return pd.DataFrame(rows, columns=columns).drop(columns=left_out)


@frame.register
def _(result: Answer) -> pd.DataFrame:
    """One row: the figures of the search; the memory is nan where its unit is not known."""
    row: dict[str, Any] = {"proved": result.proved}
    schedule, repetend = result.schedule, result.repetend
    if schedule is not None:
        placement = schedule.placement
        if repetend is not None:
            row["repetend_period_ms"] = placement.ms(repetend.period) / repetend.micro_batches
            row["period_bound_ms"] = result.period_bound * placement.tick_ms
        row["makespan_ms"] = placement.ms(schedule.makespan)
        row["makespan_bound_ms"] = placement.ms(result.makespan_bound)
        row["device_span_ms"] = placement.ms(int(device_spans(schedule).max()))
        row["device_span_bound_ms"] = placement.ms(result.device_span_bound)
        row["bubble_rate"] = bubble_rate(schedule)
        row["peak_memory_mib"] = placement.mib(int(peak_memory(schedule).max()))
    row |= {"search_seconds": result.seconds, "ended_by": result.ended_by.value, "reason": result.reason}
    return pd.DataFrame([row])


@frame.register
def _(result: Frontier) -> pd.DataFrame:
    """One row for each plan; the saving is against all clocks at their maximum, over an equal time."""
    rows = [
        (plan.time_ms, plan.energy_mj / 1e3, plan.lower_bound_mj / 1e3, result.saving(plan))
        for plan in result.plans
    ]
    columns = ["time_ms", "energy_j", "lower_bound_j", "saving_against_all_maximum"]
    return pd.DataFrame(rows, columns=columns)


@frame.register
def _(result: BestLayouts) -> pd.DataFrame:
    """One row for each number of chunks, and for each layout that was given."""
    rows = [{"name": name, **row.to_dict()} for name, row in result.named_rows]
    return pd.DataFrame(rows, columns=["name", *LAYOUT_COLUMNS])


@frame.register
def _(result: Comparison) -> pd.DataFrame:
    """One row for each schedule."""
    return pd.DataFrame([row.to_dict() for row in result.rows], columns=list(COLUMNS))


@frame.register
def _(result: Plans) -> pd.DataFrame:
    """One row for each plan, best first."""
    return pd.DataFrame(result.rows(), columns=list(PLAN_COLUMNS))


@frame.register
def _(result: SimulatedIterations) -> pd.DataFrame:
    """One row: mean and percentiles of the iterations in ms, bubble rate, and a device's longest wait."""
    row: dict[str, Any] = {"mean_ms": result.mean_ms}
    row |= {f"p{percent}_ms": time_ms for percent, time_ms in result.percentiles_ms.items()}
    row |= {"bubble_rate": result.bubble_rate, "most_waiting_ms": float(result.waiting_ms.max())}
    return pd.DataFrame([row])


@frame.register
def _(result: RobustResult) -> pd.DataFrame:
    """One row for each schedule in each scenario; the order found comes first."""
    return pd.DataFrame([vars(row) for row in result.rows])


@singledispatch
def figure(result: object) -> Any:
    """Return a result as a figure of matplotlib."""
    raise _unknown(result)


@figure.register
def _(result: Schedule) -> Any:
    return draw_timelines({title_of(result): result})


@figure.register
def _(result: Answer) -> Any:
    if result.schedule is None:
        raise ValueError(f"schedule: there is none to draw ({result.proved}: {result.reason})")
    return figure(result.schedule)


@figure.register
def _(result: Frontier) -> Any:
    points = [(plan.time_ms, plan.energy_mj) for plan in result.without_straggler]
    maximum = (result.all_maximum.time_ms, result.all_maximum.energy_mj)
    return draw_frontier(
        points,
        maximum,
        lower_bound=[(plan.time_ms, plan.lower_bound_mj) for plan in result.plans],
        stragglers=[
            point for plan in result.plans if (point := (plan.time_ms, plan.energy_mj)) not in points
        ],
        title="Time and energy of one iteration",
    ).figure


@figure.register
def _(result: Comparison) -> Any:
    if not result.by_title:
        raise ValueError("schedules: none of them fits, so there is none to draw; see to_frame() for why")
    return draw_timelines(result.by_title)


@figure.register
def _(result: BestLayouts) -> Any:
    timelines = {
        f"{name}, {row.layout}: {row.iteration_ms:,.6g} ms": row.schedule_found
        for name, row in result.named_rows
        if row.schedule_found is not None
    }
    if not timelines:
        raise ValueError("layouts: none of them fits, so there is none to draw; see to_frame() for why")
    return draw_timelines(timelines)


@figure.register
def _(result: Plans) -> Any:
    best = result.best
    used, shared = best.plan.strategies, best.rated.shared
    names = {how: strategy_in_words(how) for how in (*used, *([shared.strategy] if shared else ()))}
    peaks_gib = [peak_mib / 1024 for peak_mib in best.peaks_mib]
    return draw_plan(
        best.rated,
        names,
        peaks_gib,
        capacities_gib(best.plan, result.options),
        best.chunks,
        shared,
        best.name,
    )


@figure.register
def _(result: SimulatedIterations) -> Any:
    shares = [0.01, *(step / 20 for step in range(1, 20)), 0.99]
    curve = [CurvePoint(float(np.quantile(result.iteration_ms, share)), share) for share in shares]
    panel = Panel("", {"iterations": curve})
    return draw_panels([panel], "iteration (ms)", "share that is not longer", "Simulated iterations")


@figure.register
def _(result: RobustResult) -> Any:
    groups: dict[str, dict[str, float | None]] = {}
    for row in result.rows:
        groups.setdefault(row.schedule, {})[row.scenario] = row.mean_ms
    width = max(_MIN_INCHES, _INCHES_FOR_EACH * len(groups))
    return draw_bars([BarPanel("Mean iteration in each scenario", groups)], "ms", width=width)


_Form = tuple[Callable[[Any], Mapping[str, Any]], str, Callable[[str | Path], Any] | None]

_FORMS: Mapping[type, _Form] = {
    Schedule: (schedule_to_dict, "blocks", read_schedule),
    Answer: (result_to_dict, "search", read_result),
    Frontier: (Frontier.to_dict, "plans", Frontier.from_json),
    Comparison: (Comparison.to_dict, "rows", Comparison.from_json),
    Plans: (Plans.to_dict, "plans", None),
}
"""For each result type: its file form as plain data, a key that only its files have, and its reader."""


def save(result: object, path: str | Path) -> Path:
    """Write a result's file form, whole or not at all; return the path."""
    if type(result) not in _FORMS:
        raise _unknown(result)
    return write_json(path, _FORMS[type(result)][0](result))


def load(kind: type, path: str | Path) -> Any:
    """Read a result of a kind from the file that its `save` wrote.

    Raises:
        ValueError: The file cannot be read, is of another kind or is wrong; one line that begins with it.
    """
    _, key, read = _FORMS[kind]
    if read is None:
        raise ValueError(f"{path}: {kind.__name__} is not read again; read its plans by read_plan_file")
    wanted = f"a file that {kind.__name__}.save wrote"
    data = read_json(path, wanted, ValueError)
    if not isinstance(data, dict) or key not in data:
        raise ValueError(f"{path}: has no {key!r}, so it is no {kind.__name__}; give {wanted}")
    return read(path)


def show(result: Any) -> None:
    """Show a result's figure, if any, and its table, if short; where no pictures are shown, its text.

    Figure and table are separate outputs: in untrusted notebooks JupyterLab drops pictures inside HTML.
    """
    if not shows_pictures():
        display({"text/plain": repr(result)}, raw=True)
        return
    with suppress(ValueError):
        display(figure(result))
    if len(table := frame(result)) <= _LONGEST_TABLE:
        display(table)
