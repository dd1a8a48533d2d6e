"""GPUs by name, from tables with a row for each; the project's is `gpus.csv`, with sources of its figures.

Peaks are dense: data sheets often print twice as much, for matrices half of whose entries are zero. Memory is
the driver's figure where one was found, else the vendor's. Columns are the fields of
`placements.hardware.Gpu` and `placements.hardware.PowerModel`, and ``key``, the name. Clocks are apart by
``clock_step_mhz``, rounded down. A GPU with ``board_w`` in place of powers, of which no profile was at hand,
has the A100's in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from placements.forms.reading import in_file
from placements.forms.tables import Cell, csv_rows
from placements.hardware import DWELL_PER_LATENCY, ClockLatency, Gpu, PowerModel
from placements.profiles.operating_point import ProfileError

_A100_BOARD_W = 400.0


def read_gpus(path: str | Path) -> dict[str, Gpu]:
    """Return the GPUs of a table by name.

    Raises:
        ProfileError: The table cannot be read or is wrong.
    """
    gpus: dict[str, Gpu] = {}
    for row in csv_rows(Path(path), "GPU", ProfileError, ("key",)):
        with in_file(f"{path}: line {row.line}", ProfileError):
            gpus[row.text("key")] = _gpu_of(Cell(dict(row.cells), "", ProfileError, is_open=True), gpus)
    return gpus


def _gpu_of(row: Cell, known: Mapping[str, Gpu]) -> Gpu:
    low, high, step = (row[f"{name}_mhz"].number(min=1) for name in ("min_clock", "max_clock", "clock_step"))
    clocks_mhz = tuple(int(low + i * step) for i in range(math.ceil((high + 1 - low) / step)))
    given: dict[str, Any] = {"clocks_mhz": clocks_mhz}
    if "latency_ms" in row.value:
        ms = row["latency_ms"].number("a time", min=0)
        given["clock_latency"] = ClockLatency(ms, DWELL_PER_LATENCY * ms, row["latency_source"].text())
    if "board_w" not in row.value or "sustained_clock_mhz" in row.value:
        return row.record(Gpu, power=row.record(PowerModel), **given)
    like, scale = (known.get("a100") or GPUS["a100"]), row["board_w"].number(min=1) / _A100_BOARD_W
    given["power"] = replace(
        like.power,
        sustained_clock_mhz=max(clocks_mhz, default=1),
        static_w=scale * like.power.static_w,
        dynamic_w=scale * like.power.dynamic_w,
    )
    given["blocking_power_w"] = round(scale * like.blocking_power_w, 2)
    given["power_source"] = "the A100's in proportion to the board power"
    return row.record(Gpu, **given)


GPUS: dict[str, Gpu] = read_gpus(Path(__file__).with_name("gpus.csv"))
"""The GPUs by the name that the command line uses."""

A100_SXM_80GB, A40, V100_SXM_32GB = GPUS["a100"], GPUS["a40"], GPUS["v100"]


def gpu_table(name: str) -> tuple[dict[str, Gpu], str]:
    """Return the table of a GPU's name and the key in this table; ``mine.csv:own`` is in your own table."""
    path, _, key = name.partition(".csv:")
    return (read_gpus(f"{path}.csv"), key) if key else (GPUS, name)
