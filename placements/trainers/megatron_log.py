"""Times of pipeline ranks in a log of Megatron-LM's training: its arguments, and its timers.

Facts of Megatron-LM with megatron-core 0.16 and ``--log-timing-level 2 --timing-log-option all``: a timer has
the time of an iteration in ms, all micro-batches together, in a line for each rank; it is the mean of the
iterations since the last report. Ranks of a pipeline stage follow each other. The arguments stand at a run's
begin.
"""

from __future__ import annotations

import re
from statistics import mean, median
from typing import NamedTuple

from placements.trainers.layout import LayoutError, PipelineLayout
from placements.trainers.megatron_layout import DASHED, pipeline_of

FORWARD, BACKWARD = "forward-compute", "backward-compute"
"""Names of the timers."""

_ARGUMENT = re.compile(r"(?:^|[\s:])([a-z][a-z0-9_]*) \.{2,} (.*?)\s*$", re.MULTILINE)
_ALL = r"{}:[^\S\n]*\n(.*?)(?=^[^\n]*[\w-]:[^\S\n]*$|\biteration\s|\Z)"
_RANK = re.compile(r"\brank\s+(\d+): (\S+)")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_BATCH = ("global_batch_size", "micro_batch_size", "data_parallel_size")
_PIPELINE = {name[2:]: flag for name, flag in DASHED.items()}


class RankTimes(NamedTuple):
    """Times of a micro-batch on each rank of a pipeline: of all its forwards, and of all its backwards."""

    layout: PipelineLayout
    forward_ms: tuple[float, ...]
    backward_ms: tuple[float, ...]


def read_log(text: str) -> RankTimes:
    """Return the times that the text of a log has; of several runs in it those of the last that has some.

    Raises:
        LayoutError: It lacks the arguments or a timer, or its batch grows; one line with what to do.
    """
    text = _COLOUR.sub("", text)
    last = max(text.rfind(FORWARD), text.rfind(BACKWARD))
    found = list(_ARGUMENT.finditer(text, 0, last if last > 0 else len(text)))
    arguments = {each[1]: each[2] for each in found}
    for name in ("num_layers", *_BATCH):
        if name not in arguments:
            raise LayoutError(
                f"{name}: is not in the log; keep its begin, where Megatron-LM prints its arguments"
            )
    if (ramp_up := arguments.get("rampup_batch_size", "None")) != "None":
        raise LayoutError(f"rampup_batch_size: is {ramp_up}, so that the batch grows; train without it")
    said = {flag: arguments.get(name, "None") for name, flag in _PIPELINE.items()}
    words = [(flag, "" if value == "True" else value) for flag, value in said.items()]
    words = [pair for pair in words if pair[1] not in ("None", "False")]
    layout = pipeline_of([word for pair in words for word in pair if word]).layout
    whole, one, copies = (
        int(_number(name, arguments[name], "0*[1-9][0-9]*", "a whole number above 0")) for name in _BATCH
    )
    if whole % (one * copies):
        raise LayoutError(
            f"global_batch_size: {whole} is no multiple of micro_batch_size {one} times data_parallel_size "
            f"{copies}; give the log of one run"
        )
    begin = next(each.start() for each in reversed(found) if each[1] in (*_BATCH, *_PIPELINE))
    run, number = text[begin:], whole // one // copies
    forward_ms, backward_ms = (_timer(run, name, layout, number) for name in (FORWARD, BACKWARD))
    return RankTimes(layout, forward_ms, backward_ms)


def _number(name: str, text: str, pattern: str, what: str) -> float:
    if not re.fullmatch(pattern, text):
        raise LayoutError(f"{name}: {text!r} is not {what}; give the log as it was written")
    return float(text)


def _timer(text: str, name: str, layout: PipelineLayout, number: int) -> tuple[float, ...]:
    """Return the time of a micro-batch on each pipeline rank: the median of all reports but the first.

    Each report is of so many micro-batches.
    """
    reports = list[dict[int, float]]()
    for report in re.finditer(_ALL.format(name), text, re.DOTALL | re.MULTILINE):
        times = {
            int(rank): _number(name, time_ms, r"\d+(\.\d+)?", "a time in ms") / number
            for rank, time_ms in _RANK.findall(report[1])
        }
        reports += [times] if times else []
    if not reports:
        raise LayoutError(
            f"{name}: is not in the log for each rank; train with --log-timing-level 2 "
            "--timing-log-option all"
        )
    steady = reports[1:] or reports
    # The end of the last report may be cut off.
    steady = steady[:-1] if 0 < len(steady[-1]) < len(steady[0]) else steady
    world, ranks = len(steady[0]), layout.num_devices
    if world % ranks or any(times.keys() != set(range(world)) for times in steady):
        raise LayoutError(
            f"{name}: has {world} ranks, and the pipeline {ranks}; give the log of one whole run"
        )
    of_rank = [median(times[rank] for times in steady) for rank in range(world)]
    share = world // ranks
    return tuple(mean(of_rank[i * share : (i + 1) * share]) for i in range(ranks))
