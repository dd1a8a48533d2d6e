"""GPUs by name, of tables with a row for each; the project's is `gpus.csv`, with where its figures are from.

Peaks are dense: data sheets often print twice as much, for matrices half of whose entries are zero. Memory is
what the driver reports where that was found, else what the vendor states. Columns are the fields of
`placements.hardware.Gpu` and `placements.hardware.PowerModel`, and ``key``, the name. Clocks are apart by
``clock_step_mhz``, rounded down. A GPU with ``board_w`` in place of powers, of which no profile was at hand,
has the A100's in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from placements.hardware import ASSUMED_LATENCY, DWELL_PER_LATENCY, ClockLatency, Gpu, PowerModel
from placements.meaning import declared_fields
from placements.plain_data import in_file
from placements.profiles.operating_point import ProfileError
from placements.tables import Row, csv_rows

_A100_BOARD_W = 400.0

_COLUMNS = ("key", "min_clock_mhz", "max_clock_mhz", "clock_step_mhz")


def read_gpus(path: str | Path) -> dict[str, Gpu]:
    """Return the GPUs of a table by name.

    Raises:
        ProfileError: The table cannot be read or is wrong.
    """
    found: dict[str, Gpu] = {}
    with in_file(path, ProfileError):
        for row in csv_rows(Path(path), "GPU", ProfileError, _COLUMNS):
            found[row.text("key")] = _gpu_of(row, found)
    return found


def _figures(row: Row, kind: type) -> dict[str, Any]:
    known = (each for each in declared_fields(kind) if each.key in row)
    return {each.name: row[each.key].typed(each.kind, meaning=each.meaning) for each in known}


def _gpu_of(row: Row, known: Mapping[str, Gpu]) -> Gpu:
    figures = _figures(row, Gpu)
    low, high, step = (row[name].number("a clock above 0", min=1) for name in _COLUMNS[1:])
    clocks = (int(low + i * step) for i in range(int((high - low + 1) / step) + 1))
    figures["clocks_mhz"] = tuple(clock for clock in clocks if clock <= high)
    if "latency_ms" in row:
        ms = row["latency_ms"].number("a time", min=0)
        figures["clock_latency"] = ClockLatency(ms, DWELL_PER_LATENCY * ms, row.text("latency_source"))
    if "board_w" not in row:
        power = PowerModel(**_figures(row, PowerModel))
        return Gpu(**figures, power=power)
    like, scale = (known.get("a100") or GPUS["a100"]), row["board_w"].number(min=1) / _A100_BOARD_W
    figures["power"] = replace(
        like.power,
        sustained_clock_mhz=figures["clocks_mhz"][-1],
        static_w=scale * like.power.static_w,
        dynamic_w=scale * like.power.dynamic_w,
    )
    figures["blocking_power_w"] = round(scale * like.blocking_power_w, 2)
    figures["power_source"] = "the A100's in proportion to the board power"
    return Gpu(**figures)


GPUS: dict[str, Gpu] = read_gpus(Path(__file__).with_name("gpus.csv"))
"""The GPUs by the name that the command line uses."""

A100_SXM_80GB, A40, V100_SXM_32GB = GPUS["a100"], GPUS["a40"], GPUS["v100"]


def gpus_of(name: str) -> tuple[dict[str, Gpu], str]:
    """Return the GPUs that a name is looked up in, and the name there: ``mine.csv:own`` is in your table."""
    path, _, own = name.partition(".csv:")
    return (read_gpus(f"{path}.csv"), own) if own else (GPUS, name)


def clock_latency_of(name: str) -> ClockLatency:
    """Return what a change of clock takes on the GPU of a name, as its driver writes it.

    >>> clock_latency_of("NVIDIA A100-SXM4-80GB").source
    'Perseus, footnote 2: around 10 ms; dwell assumed'
    >>> clock_latency_of("another").source
    'assumed, as of the A100'
    """
    known = {gpu.name: gpu.clock_latency for gpu in GPUS.values()}
    return known.get(name, ASSUMED_LATENCY)
