"""The task of `experiments.time_by_transfer`: how long an iteration takes by what a transfer holds up.

Tessel measures its schedules with blocking and with non-blocking communication on V100 GPUs (Tessel,
Fig. 17). Here the programs of ours are played in virtual time, for any ratio of transfers to blocks. As in
Tessel, the search does not know of transfers; they come on top. It ends with the repetend, which is then
unrolled, so that the same options give the same rows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import partial

from omegaconf import DictConfig

from experiments.config.options import (
    OptionError,
    read_record,
    require,
    require_known,
    require_least,
    require_once,
)
from experiments.config.run_record import output_directory
from experiments.figures.options import TransferSweepOptions
from experiments.figures.pool import SweepAnswer, collect
from experiments.figures.sweep import check_search_options, shape_title
from placements import Placement, PlacementError
from placements.files import csv_text
from placements.gpus import GPUS
from placements.models.gpt.gpt_config import hidden_bytes
from placements.models.gpt.gpt_placement import GPT_11B, gpt_m_shape
from placements.shapes import SHAPES
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.virtual.play import play
from runtime.virtual.rules import Communication
from schedsearch.bounds.memory_need import CapacityError, require_capacity
from schedsearch.figures.canvas import save
from schedsearch.figures.panels import CurvePoint, Panel, draw_panels
from schedsearch.modulo.search import search
from schedsearch.schedule import Schedule

log = logging.getLogger(__name__)

NAME = "time_by_transfer"
"""Name of the command, its config and its files."""

GPT = "gpt"
"""The placement whose times are from a cost model."""

MORE_THAN_DEVICES = 2
"""Memory beyond the number of devices that Tessel's placements need for no bubble at all."""

_BLOCKING, _DEVICE, _PAIR, _DIRECTED = Communication

LINES = {
    (_BLOCKING, False): "blocking: both devices wait",
    (_DEVICE, False): "non-blocking, one communicator per device",
    (_PAIR, False): "non-blocking, one per pair",
    (_DIRECTED, False): "non-blocking, one per direction (ours)",
    (_DIRECTED, True): "ours, receives posted early",
}
"""What is drawn: by communication, and whether receives are posted early."""

_INFINIBAND_GB_S = 12.5
"""Between Tessel's servers (Sec. VI-A)."""


@dataclass(frozen=True)
class TransferRow:
    """One iteration in virtual time.

    Attributes:
        placement: Its name among the options.
        num_devices: Number of devices of it.
        num_micro_batches: Number of micro-batches of the iteration.
        proved: Proof of the search for the plan, in words; see `SearchResult.proved`.
        transfer: Time of one transfer as a share of the first stage's forward.
        communication: What a transfer holds up.
        receives: ``early`` or ``late``: posted ahead of other blocks, or where the message is due.
        time: Of the iteration, in first stages' forwards.
        slowdown: `time` over that of the plan, which knows no transfers.
        speed_up: Time with blocking transfers over `time`, for the same placement and transfer.
    """

    placement: str
    num_devices: int
    num_micro_batches: int
    proved: str
    transfer: float
    communication: Communication
    receives: str
    time: float
    slowdown: float
    speed_up: float


COLUMNS = [field.name for field in fields(TransferRow)]
"""Of the CSV."""


def task(config: DictConfig) -> None:
    """Search, play, and save as CSV, PNG and SVG."""
    options = read_record(config, TransferSweepOptions)
    check_options(options)
    cases = {name: placement_of(name, options) for name in options.placements}
    path = output_directory() / f"{NAME}.csv"
    rows = collect(
        NAME,
        [partial(played, name, placement, options) for name, placement in cases.items()],
        options.num_processes,
        path,
        to_csv,
        lambda row: options.placements.index(row.placement),
        lambda row: row.placement,
    )
    log.info("%s", to_table(rows))
    figure = draw_panels(
        [_panel(name, [row for row in rows if row.placement == name], options) for name in cases],
        "transfer / first stage's forward",
        "iteration / its plan without transfers",
        f"Blocking and non-blocking transfers, {options.num_devices} devices, "
        f"{options.num_micro_batches} micro-batches (Tessel, Fig. 17)",
    )
    save(figure, path)
    log.info("figure in %s, rows in %s", path.with_suffix(".png"), path)


def check_options(options: TransferSweepOptions) -> None:
    """Reject wrong options before any work starts.

    Raises:
        OptionError: One is out of its range.
    """
    known = [GPT, *SHAPES]
    for name in ("placements", "transfers"):
        if not getattr(options, name):
            raise OptionError(f"{name}: is empty; give at least one")
    require_once("placements", options.placements)
    for name in options.placements:
        require_known("placements", name, known)
    for value in options.transfers:
        is_number = type(value) in (int, float) and 0 <= value < math.inf
        require(is_number, "transfers", value, "a number of 0 or more")
    for name, least in (("num_micro_batches", 1), ("receive_ahead", 1), ("memory", 0)):
        require_least(name, getattr(options, name), least)
    check_search_options(options)
    require_known("gpu", options.gpu, GPUS)


def placement_of(name: str, options: TransferSweepOptions) -> Placement:
    """Return a placement without transfers.

    Raises:
        OptionError: It cannot have so many devices, or its memory does not hold one micro-batch.
    """
    try:
        if name == GPT:
            return replace(gpt_m_shape(GPT_11B, GPUS[options.gpu], options.num_devices), transfer=())
        memory = options.num_devices + MORE_THAN_DEVICES if options.memory is None else options.memory
        placement = SHAPES[name](num_devices=options.num_devices).with_memory(memory)
        require_capacity(placement)
        return placement
    except PlacementError as error:
        raise OptionError(f"{name}: {error}") from None
    except CapacityError as error:
        raise OptionError(f"{name}: {error.reason}; raise memory") from None


def played(name: str, placement: Placement, options: TransferSweepOptions) -> SweepAnswer[TransferRow]:
    """Search a schedule, and play its programs with every transfer time.

    Raises:
        OptionError: No schedule is found.
    """
    result = search(
        placement,
        options.num_micro_batches,
        objectives=("period",),
        solver=options.solver,
        work_limit=options.work_limit,
        seed=options.seed,
    )
    if result.interrupted:
        return SweepAnswer((), True)
    if result.schedule is None:
        raise OptionError(
            f"memory: {name} has no schedule that fits, or none was found in the work; raise it or work_limit"
        )
    rows = _rows(name, result.schedule, result.proved, options)
    return SweepAnswer(tuple(rows))


def _rows(name: str, schedule: Schedule, proved: str, options: TransferSweepOptions) -> Iterator[TransferRow]:
    """Yield a row for each transfer time and line."""
    late = check(lower(schedule))
    programs = {False: late, True: check(prefetch_receives(late, options.receive_ahead))}
    forward = schedule.placement.by_name["F0"].time
    for transfer in sorted(set(map(float, options.transfers))):
        ticks = _always(transfer * forward)
        times = {line: play(programs[line[1]], line[0], transfer_time=ticks).time for line in LINES}
        for (communication, is_early), time in times.items():
            yield TransferRow(
                placement=name,
                num_devices=options.num_devices,
                num_micro_batches=options.num_micro_batches,
                proved=proved,
                transfer=transfer,
                communication=communication,
                receives="early" if is_early else "late",
                time=time / forward,
                slowdown=time / schedule.makespan,
                speed_up=times[_BLOCKING, False] / time,
            )


def _always(ticks: float) -> Callable[[str, str], float]:
    return lambda producer, consumer: ticks


def to_csv(rows: Iterable[TransferRow]) -> str:
    """Return rows as CSV; numbers have six digits."""
    cells = (
        [f"{value:.6g}" if isinstance(value, float) else value for value in astuple(row)] for row in rows
    )
    return csv_text(COLUMNS, cells)


def to_table(rows: Sequence[TransferRow]) -> str:
    """Return slowdowns as text: a line per placement and communication, a column per transfer time."""
    transfers = sorted({row.transfer for row in rows})
    width = max(len(name) for name in LINES.values())
    head = f"{'time / plan':<11} {'transfer =':>{width}} " + "".join(f"{value:>7g}" for value in transfers)
    lines: dict[tuple[str, str], str] = {}
    for row in rows:
        key = row.placement, _line_of(row)
        lines[key] = lines.get(key, "") + f"{row.slowdown:>7.3f}"
    return "\n".join([head, *(f"{name:<11} {line:<{width}} {text}" for (name, line), text in lines.items())])


def _line_of(row: TransferRow) -> str:
    return LINES[row.communication, row.receives == "early"]


def _panel(name: str, rows: Sequence[TransferRow], options: TransferSweepOptions) -> Panel:
    lines: dict[str, list[CurvePoint]] = {}
    for row in rows:
        lines.setdefault(_line_of(row), []).append(CurvePoint(row.transfer, row.slowdown))
    gains = [row.speed_up for row in rows if (row.communication, row.receives) == (_DIRECTED, "early")]
    low, high = min(gains), max(gains)
    note = f"blocking / ours early: {low:.2f} to {high:.2f}"
    if name != GPT:
        return Panel(shape_title(name), lines, note)
    return Panel(f"GPT-11B, {options.gpu.upper()}", lines, note, dict(_links(options)))


def _links(options: TransferSweepOptions) -> Iterator[tuple[str, float]]:
    """Yield where the transfer times of real links are, as far as the figure reaches."""
    gpu = GPUS[options.gpu]
    placement = gpt_m_shape(GPT_11B, gpu, options.num_devices)
    forward_ms = placement.by_name["F0"].time * placement.tick_ms
    for name, gb_s in (("GPU's link", gpu.link_bandwidth_gb_s), ("100 Gb/s", _INFINIBAND_GB_S)):
        transfer = hidden_bytes(GPT_11B) / (gb_s * 1e6) / forward_ms
        if transfer <= max(options.transfers):
            yield name, transfer
