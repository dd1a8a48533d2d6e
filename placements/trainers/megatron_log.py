"""Times of pipeline ranks in a log of Megatron-LM's training: its arguments, and its timers.

Facts of Megatron-LM with megatron-core 0.16 and ``--log-timing-level 2 --timing-log-option all``: a timer has
the time of an iteration in ms, all micro-batches together, in a line for each rank; it is the mean of the
iterations since the last report. Ranks of a pipeline stage follow each other. The arguments stand at a run's
begin. A line before each report has the batch, which may still be ramped up.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise
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
_ITERATION = re.compile(r"\biteration\s+\d+/.*?\bglobal batch size:\s*(\d+)")
_BATCH = ("global_batch_size", "micro_batch_size", "data_parallel_size")
_PIPELINE = {name[2:]: flag for name, flag in DASHED.items()}


class RankTimes(NamedTuple):
    """Times of a micro-batch on the ranks of a pipeline.

    Attributes:
        layout: Which parts of the model each rank has.
        forward_ms: Time of all its forwards.
        backward_ms: Time of all its backwards.
        num_runs: Runs in the log, of which the last counts.
    """

    layout: PipelineLayout
    forward_ms: tuple[float, ...]
    backward_ms: tuple[float, ...]
    num_runs: int = 1

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of each rank, all of its stages together."""
        ranks = self.layout.num_devices
        return tuple("".join(self.layout.stages[rank::ranks]) for rank in range(ranks))


def read_log(text: str) -> RankTimes:
    """Return the times that the text of a log has; of several runs in it those of the last that has some.

    Raises:
        LayoutError: It lacks the arguments or a timer; one line with what to give Megatron-LM.
    """
    text = _COLOUR.sub("", text)
    runs = [run for run in _runs(text) if FORWARD in run or BACKWARD in run]
    text = runs[-1] if runs else text
    arguments: dict[str, str] = dict(_ARGUMENT.findall(text))
    for name in ("num_layers", *_BATCH):
        if name not in arguments:
            raise LayoutError(
                f"{name}: is not in the log; keep its begin, where Megatron-LM prints its arguments"
            )
    said = {flag: arguments.get(name, "None") for name, flag in _PIPELINE.items()}
    given = {
        flag: "" if value == "True" else value
        for flag, value in said.items()
        if value not in ("None", "False")
    }
    layout = pipeline_of([word for pair in given.items() for word in pair if word]).layout
    whole, one, copies = (
        int(_number(name, arguments[name], "0*[1-9][0-9]*", "a whole number above 0")) for name in _BATCH
    )
    if whole % (one * copies):
        raise LayoutError(
            f"global_batch_size: {whole} is no multiple of micro_batch_size {one} times data_parallel_size "
            f"{copies}; give the log of one run"
        )
    ramp_up, batches = arguments.get("rampup_batch_size", "None"), list(_ITERATION.finditer(text))
    if ramp_up != "None" and not batches:
        raise LayoutError(
            f"rampup_batch_size: is {ramp_up}, but no line of an iteration says its batch; keep them"
        )
    numbers = [(0, whole / one / copies), *((each.end(), int(each[1]) / one / copies) for each in batches)]
    forward_ms, backward_ms = (_timer(text, name, layout, numbers) for name in (FORWARD, BACKWARD))
    return RankTimes(layout, forward_ms, backward_ms, max(1, len(runs)))


def _runs(text: str) -> list[str]:
    """Return the text of each run: its arguments, and what follows up to the next ones."""
    found = [match for match in _ARGUMENT.finditer(text) if match[1] in (*_BATCH, *_PIPELINE)]
    starts = [
        after.start() for before, after in pairwise(found) if "-compute" in text[before.end() : after.start()]
    ]
    return [text[begin:end] for begin, end in pairwise([0, *starts, len(text)])]


def _number(name: str, text: str, pattern: str, what: str) -> float:
    if not re.fullmatch(pattern, text):
        raise LayoutError(f"{name}: {text!r} is not {what}; give the log as it was written")
    return float(text)


def _timer(
    text: str, name: str, layout: PipelineLayout, numbers: Sequence[tuple[int, float]]
) -> tuple[float, ...]:
    """Return the time of a micro-batch on each pipeline rank: the median of all reports but the first.

    Numbers are the micro-batches of an iteration, each from a position of the text on.
    """
    reports = list[dict[int, float]]()
    for report in re.finditer(_ALL.format(name), text, re.DOTALL | re.MULTILINE):
        number = numbers[bisect(numbers, (report.start(), 0.0)) - 1][1]
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
