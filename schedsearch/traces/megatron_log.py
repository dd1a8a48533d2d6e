"""Logs of Megatron-LM with timers: times of its pipeline ranks, and an iteration made of them.

Facts of Megatron-LM with megatron-core 0.16 and ``--log-timing-level 2 --timing-log-option all``: a timer has
the time of an iteration in ms, all micro-batches together, in a line for each rank; it is the mean of the
iterations since the last report. Ranks of a pipeline stage follow each other. The arguments stand at a run's
begin. Reading data is timed within the forwards, and gathering parameters within the optimizer. Timers after
the blocks begin on all ranks at once, after a barrier.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from placements.forms.reading import in_file
from placements.stages.layout_stages import place_layout
from placements.trainers.layers import RankTimes, layers_from_ranks
from placements.trainers.layout import LayoutError
from placements.trainers.megatron_layout import DASHED, MegatronPipeline, pipeline_of
from schedsearch.baselines import UnsuitablePlacementError, interleaved_one_f_one_b, one_f_one_b
from schedsearch.traces.table import Span, TraceError, TraceTable
from schedsearch.traces.texts import text_of

FORWARD, BACKWARD = "forward-compute", "backward-compute"
"""Names of the timers of blocks."""

DATA, OPTIMIZER, PARAMETERS = "batch-generator", "optimizer", "params-all-gather"
"""Names of the timers of reading data, of the update, and of gathering parameters."""

_ARGUMENT = re.compile(r"(?:^|[\s:])([a-z][a-z0-9_]*) \.{2,} (.*?)\s*$", re.MULTILINE)
_TITLE = re.compile(r"(?<![\w-])([\w-]+):\s*$")
_RANK = re.compile(r"\brank\s+(\d+): (\S+)")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_GRADIENTS = re.compile(r"[\w-]*grads-(sync|all-reduce|reduce-scatter)")
_ITERATION = re.compile(r"\biteration\s+(\d+)/.*?elapsed time per iteration \(ms\): ([\d.]+)")
_BATCH = ("global_batch_size", "micro_batch_size", "data_parallel_size")
_PIPELINE = {name[2:]: flag for name, flag in DASHED.items()}


class MegatronLog(NamedTuple):
    """Times of a run: medians over all reports but the first.

    Attributes:
        pipeline: The layout of the model, and the micro-batches that go through a chunk in turn.
        num_micro_batches: Micro-batches of a replica's iteration.
        num_replicas: Data-parallel size.
        timers: Time of an iteration on each pipeline rank (ms) by the name of the timer.
        iteration_ms: Time of an iteration, by the number of the last one reported; empty if the log has none.
    """

    pipeline: MegatronPipeline
    num_micro_batches: int
    num_replicas: int
    timers: Mapping[str, tuple[float, ...]]
    iteration_ms: Mapping[int, float]

    @property
    def rank_times(self) -> RankTimes:
        """Times of a micro-batch on each pipeline rank."""
        times = (
            tuple(ms / self.num_micro_batches for ms in self.timers[name]) for name in (FORWARD, BACKWARD)
        )
        return RankTimes(self.pipeline.layout, *times)


def is_log(text: str) -> bool:
    """Return whether text is of a log of Megatron-LM: it has its timers, arguments or iterations."""
    return bool(re.search(rf"{FORWARD}|{BACKWARD}| \.{{4,}} |elapsed time per iteration \(ms\)", text))


def read_megatron_log(path: str | Path) -> TraceTable:
    """Read a log as one iteration of its median times, in the order that its arguments say.

    Begin times are computed: all blocks of a stage take equally long, and nothing waits for messages.

    Raises:
        TraceError: The log lacks something; one line with the remedy.
    """
    path = Path(path)
    with in_file(path, TraceError):
        log = read_log(text_of(path))
        (layout, group), number = log.pipeline, log.num_micro_batches
        try:
            placement = place_layout(layout, layers_from_ranks(log.rank_times)).placement
            if layout.num_chunks > 1:
                schedule = interleaved_one_f_one_b(placement, number, group)
            else:
                schedule = one_f_one_b(placement, number)
        except (LayoutError, UnsuitablePlacementError) as error:
            raise TraceError(str(error)) from None
    spans, nothing, iteration = list[Span](), (0.0,) * layout.num_devices, next(iter(log.iteration_ms), 0)
    data_ms = [ms / number / layout.num_chunks for ms in log.timers.get(DATA, nothing)]
    for start, n, name in schedule.blocks:
        block = placement.by_name[name]
        (rank,), kind = block.devices, block.kind.value
        begin_ms, end_ms = (placement.ms(ticks) for ticks in (start, start + block.time))
        if kind == "F" and data_ms[rank]:
            read_ms = min(begin_ms + data_ms[rank], end_ms)
            spans.append(Span(rank, int(name[1:]), "data", n, begin_ms, read_ms, iteration))
            begin_ms = read_ms
        spans.append(Span(rank, int(name[1:]), kind, n, begin_ms, end_ms, iteration))
    for name in [*(name for name in log.timers if "grads" in name), OPTIMIZER, PARAMETERS]:
        times_ms, now_ms = log.timers.get(name, nothing), max(span.end_ms for span in spans)
        if name == OPTIMIZER:
            within = log.timers.get(PARAMETERS, nothing)
            times_ms = tuple(max(0.0, ms - part) for ms, part in zip(times_ms, within, strict=True))
        kind = OPTIMIZER if name == OPTIMIZER else "collective"
        for rank, ms in enumerate(times_ms):
            spans += [Span(rank, None, kind, None, now_ms, now_ms + ms, iteration)] if ms else []
    order = "interleaved 1F1B" if layout.num_chunks > 1 else "1F1B"
    line = (
        f"{path.stem}: a log has sums, not blocks: one iteration of median times in the order of {order}, "
        "with computed begin times and no waiting for messages"
    )
    sizes = log.num_replicas, layout.num_devices, layout.num_chunks
    return TraceTable(path.stem, spans, (line,), *sizes, is_one_clock=True, iteration_ms=log.iteration_ms)


def read_log(text: str) -> MegatronLog:
    """Return the times in the text of a log; of several runs, of the last one with timers.

    Raises:
        TraceError: The log lacks the arguments or a timer, or its batch grows; one line with the remedy.
    """
    text = _COLOUR.sub("", text)
    last = max(text.rfind(FORWARD), text.rfind(BACKWARD))
    matches = list(_ARGUMENT.finditer(text, 0, last if last > 0 else len(text)))
    arguments = {match[1]: match[2] for match in matches}
    for name in ("num_layers", *_BATCH):
        if name not in arguments:
            raise TraceError(
                f"{name}: is not in the log; keep its begin, where Megatron-LM prints its arguments"
            )
    if (ramp_up := arguments.get("rampup_batch_size", "None")) != "None":
        raise TraceError(f"rampup_batch_size: is {ramp_up}, so that the batch grows; train without it")
    said = {flag: arguments.get(name, "None") for name, flag in _PIPELINE.items()}
    pairs = (pair for pair in said.items() if pair[1] not in ("None", "False"))
    try:
        pipeline = pipeline_of([word for pair in pairs for word in pair])
    except LayoutError as error:
        raise TraceError(str(error)) from None
    whole, size, copies = (
        int(_number(name, arguments[name], "0*[1-9][0-9]*", "a whole number above 0")) for name in _BATCH
    )
    if whole % (size * copies):
        raise TraceError(
            f"global_batch_size: {whole} is no multiple of micro_batch_size {size} times data_parallel_size "
            f"{copies}; give the log of one run"
        )
    begin = next(match.start() for match in reversed(matches) if match[1] in (*_BATCH, *_PIPELINE))
    run, reports = text[begin:], _reports(text[begin:])
    ranks, timers = pipeline.layout.num_devices, dict[str, tuple[float, ...]]()
    for name in (FORWARD, BACKWARD):
        if not reports[name]:
            raise TraceError(
                f"{name}: is not in the log for each rank; train with --log-timing-level 2 "
                "--timing-log-option all"
            )
        world = len(reports[name][0])
        if world % ranks or any(times.keys() != set(range(world)) for times in reports[name]):
            raise TraceError(
                f"{name}: has {world} ranks, and the pipeline {ranks}; give the log of one whole run"
            )
    for name in (FORWARD, BACKWARD, DATA, *filter(_GRADIENTS.fullmatch, reports), OPTIMIZER, PARAMETERS):
        # Processes without a timer are not in its reports.
        of_process = [
            median(_number(name, times.get(process, "0"), r"\d+(\.\d+)?", "a time in ms") for times in series)
            for process in range(world)
            if (series := reports[name])
        ]
        share = world // ranks
        if of_process:
            timers[name] = tuple(mean(of_process[i * share : (i + 1) * share]) for i in range(ranks))
    steady = [(int(number), float(ms)) for number, ms in _ITERATION.findall(run)]
    steady = steady[1:] or steady
    iteration_ms = {steady[-1][0]: median(ms for _, ms in steady)} if steady else {}
    return MegatronLog(pipeline, whole // size // copies, copies, timers, iteration_ms)


def _number(name: str, text: str, pattern: str, what: str) -> float:
    if not re.fullmatch(pattern, text):
        raise TraceError(f"{name}: {text!r} is not {what}; give the log as it was written")
    return float(text)


def _reports(text: str) -> Mapping[str, Sequence[Mapping[int, str]]]:
    """Return the times of each timer by process, in all reports but the first, if there are others."""
    by_timer, report = defaultdict[str, list[dict[int, str]]](list), dict[int, str]()
    for line in text.splitlines():
        if title := _TITLE.search(line):
            report = {}
            by_timer[title[1]].append(report)
        elif re.search(r"\biteration\s", line):
            report = {}
        else:
            report |= {int(process): time for process, time in _RANK.findall(line)}
    for name, reports in by_timer.items():
        steady = [times for times in reports if times]
        steady = steady[1:] or steady
        # The end of the last report may be cut off.
        by_timer[name] = steady[:-1] if steady and len(steady[-1]) < len(steady[0]) else steady
    return by_timer
