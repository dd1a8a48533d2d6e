"""CPU time and memory of each step by the size of a schedule, every step in a process of its own.

``python -m experiments.benchmarks.measures.size FILE.json`` draws the results of the group as ``FILE.svg``.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from experiments.benchmarks.frame import by_part, read_rows
from experiments.benchmarks.inputs.made_placements import made_placement
from experiments.benchmarks.timing import load_solvers as prepare
from experiments.benchmarks.timing import timed
from placements import Placement
from placements.forms.texts import write_bytes, write_json
from runtime.codegen.codegen import generate
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from schedsearch.baselines import HAND_MADE
from schedsearch.figures.canvas import curve_look, draw_logarithms, image, legend_below, panels_in
from schedsearch.figures.comparison import draw_timelines
from schedsearch.metrics import bubble_rate, latency, peak_memory
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import read_schedule, schedule_to_dict
from schedsearch.searches.search import search
from schedsearch.simulation.conditions import Conditions
from schedsearch.simulation.iterations import simulate
from schedsearch.validate import validate

__all__ = ["draw", "prepare", "size"]

_BY_HAND = {"v_shape": "one_f_one_b", "m_shape": "one_f_one_b_plus", "loop_shape": "interleaved_one_f_one_b"}
"""The schedule made by hand on which the steps work, by shape."""


def _file(schedule: Schedule, folder: Path) -> None:
    write_json(folder / "schedule.json", schedule_to_dict(schedule))
    read_schedule(folder / "schedule.json")


_STEPS: dict[str, Callable[[Schedule, Path], object]] = {
    "validate": lambda schedule, _: validate(schedule),
    "metrics": lambda schedule, _: [metric(schedule) for metric in (bubble_rate, peak_memory, latency)],
    "file": _file,
    "simulate": lambda schedule, _: simulate(schedule, Conditions(jitter=0.1), iterations=10),
    "draw": lambda schedule, _: image(draw_timelines({"": schedule}), "png"),
    "programs": lambda schedule, _: check(lower(schedule)),
    "receives": lambda schedule, _: prefetch_receives(lower(schedule), 1),
    "scripts": lambda schedule, folder: generate(lower(schedule), {}, {"name": "given"}, folder),
}
"""Steps that begin with a schedule; beside them are ``by_hand``, which makes it, and ``search``."""


def size(*, step: str, micro_batches: int, **made: Any) -> dict[str, Any]:
    """Return a step's CPU seconds and the peak memory of its process (MiB); `made`: see `made_placement`."""
    placement = made_placement(**made)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, context) as process:
        seconds, peak_mib = process.submit(_alone, step, made["shape"], placement, micro_batches).result()
    return {"blocks": len(placement.blocks) * micro_batches, "cpu_s": seconds, "peak_mib": peak_mib}


def _alone(step: str, shape: str, placement: Placement, micro_batches: int) -> tuple[float, int]:
    """Return the CPU seconds of a step in this process, and the most memory that it ever had, in MiB."""
    make = HAND_MADE[_BY_HAND[shape]]
    with tempfile.TemporaryDirectory() as folder:
        if step == "search":  # with 5 units of work
            _, seconds = timed(lambda: search(placement, micro_batches, work_limit=5.0))
        elif step == "by_hand":
            _, seconds = timed(lambda: make(placement, micro_batches))
        else:
            schedule = make(placement, micro_batches)
            _, seconds = timed(lambda: _STEPS[step](schedule, Path(folder)))
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return round(seconds, 2), int(status.partition("VmHWM:")[2].split()[0]) // 1024


def draw(path: Path) -> None:
    """Draw the CPU seconds and the memory of each part of the results against blocks, as SVG beside them."""
    parts = by_part(read_rows(path))
    titles = {"cpu_s": "CPU seconds", "peak_mib": "peak memory of the process (MiB)"}
    with panels_in([*titles.values()], (13.0, 6.0), 2) as (figure, grid):
        for axes, name in zip(grid.flat, titles, strict=True):
            for i, (part, rows) in enumerate(parts.items()):
                points = [(row.numbers["blocks"], max(row.numbers[name], 0.01)) for row in rows]
                look = curve_look(i) | {"markerfacecolor": "white" if i > 7 else None}  # colours come again
                axes.plot(*zip(*points, strict=True), label=part.replace("_", " "), **look)
            axes.set_xlabel("blocks of all micro-batches")
            draw_logarithms(axes, "xy")
        legend_below(figure, axes.get_lines())
    write_bytes(path.with_suffix(".svg"), image(figure, "svg"))


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
