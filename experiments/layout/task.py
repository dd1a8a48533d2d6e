"""The task of `experiments.layout`: the best layouts, their table, and the files of each framework."""

from __future__ import annotations

from experiments.config.options import OptionError, require_path
from experiments.layout.options import LayoutCommandOptions
from experiments.report.result import Result, Table
from placements.trainers.files import layout_files, read_any
from placements.trainers.layers import read_measured
from schedsearch.layouts.layouts import COLUMNS, NOT_APPLICABLE, BestLayouts, LayoutRow, layout
from schedsearch.schedule_file import schedule_to_dict


def task(options: LayoutCommandOptions) -> Result:
    """Find the layouts; the figures are the best layout's."""
    measured = read_measured(require_path("layers", options.layers), options.measured_layout)
    given = {path: read_any(require_path("given", path)) for path in options.given}
    found = layout(
        measured,
        options.num_devices,
        options.num_micro_batches,
        options.num_chunks,
        options.memory_mib,
        options.transfer_ms,
        given,
        options.work_limit,
    )
    best = found.best
    if best is None:
        nearest = [row.note for row in found.rows if row.status != NOT_APPLICABLE]
        raise OptionError("; ".join(dict.fromkeys(nearest or [row.note for row in found.rows])))
    assert best.iteration_ms is not None and best.bound_ms is not None, "it is timed"
    files: dict[str, object] = {"layers.csv": measured.to_csv()} if measured.assumptions else {}
    lines = [*_shown(found), *(f"{options.layers}: {line}" for line in measured.assumptions)]
    for row in found.rows:
        if row.found is None or row.schedule_found is None:
            continue
        folder = f"{row.schedule}_{row.num_chunks}"
        texts, others = layout_files(row.found, found.num_micro_batches, row.group)
        files |= {f"{folder}/{name}": text for name, text in texts.items()}
        files[f"{folder}/schedule.json"] = schedule_to_dict(row.schedule_found)
        lines += [f"{folder}: {line}" for line in others]
    return Result(
        figures={
            "layout": best.layout,
            "num_chunks": best.num_chunks,
            "iteration_ms": best.iteration_ms,
            "bound_ms": best.bound_ms,
        },
        tables={"layout": Table(LayoutRow, (*found.rows, *found.given.values()), COLUMNS)},
        files=files,
        sentences=lines,
        interrupted="the best layouts found so far are in" * found.interrupted,
    )


def _shown(found: BestLayouts) -> list[str]:
    """Return two lines for each layout: its time, and the layout."""
    lines = []
    for name, row in found.named_rows:
        if row.iteration_ms is None:
            lines.append(f"{name}, {row.num_chunks} a device: {row.status}; {row.note}")
            continue
        parts = [f"{name}, {row.num_chunks} a device: {row.iteration_ms:,.6g} ms, {row.status}"]
        if row.bound_ms is not None and 0 < row.bound_ms < row.iteration_ms:
            parts.append(f"none is under {row.bound_ms:,.6g} ms")
        if row.even_ms is not None:
            parts.append(f"even layout {row.even_ms:,.6g} ms")
        parts.append(f"{row.peak_memory_mib:,.6g} MiB")
        lines += ["; ".join(parts), f"    {row.layout}"]
    return lines
