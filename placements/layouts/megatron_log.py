"""Times of pipeline ranks in a log of Megatron-LM's training: its arguments, and its timers.

Facts of Megatron-LM with megatron-core 0.16 and ``--log-timing-level 2``: a timer has the time of an
iteration in ms, all micro-batches together, as ``(min, max)`` over ranks, or with
``--timing-log-option all`` in a line for each rank; it is the mean of the iterations since the last report.
Ranks of a pipeline stage follow each other. The arguments stand at a run's begin. A line before each report
has the samples so far, which tell how many micro-batches an iteration had while the batch was ramped up.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean, median
from typing import NamedTuple

from placements.layouts.layout import LAYER, MTP, LayoutError, PipelineLayout
from placements.layouts.megatron_arguments import DASHED, pipeline_of

FORWARD, BACKWARD = "forward-compute", "backward-compute"
"""Names of the timers."""

_ARGUMENT = re.compile(r"(?:^|[\s:])([a-z][a-z0-9_]*) \.{2,} (.*?)\s*$", re.MULTILINE)
_RANGE = r"{} \.+: \(([\d.]+), ([\d.]+)\)"
_ALL = r"{}:[^\S\n]*\n(.*?)(?=^[^\n]*[\w-]:[^\S\n]*$|\biteration\s|\Z)"
_RANK = re.compile(r"\brank\s+(\d+): (\S+)")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_ITERATION = re.compile(
    r"\biteration\s+(\d+)/\s*\d+\s*\|.*?\bconsumed samples:\s*(\d+)(?:.*\bglobal batch size:\s*(\d+))?"
)
_BATCH = ("global_batch_size", "micro_batch_size", "data_parallel_size")
_PIPELINE = {name[2:]: flag for name, flag in DASHED.items()}


class RankTimes(NamedTuple):
    """Times of a micro-batch on the ranks of a pipeline.

    Attributes:
        layout: Which parts of the model each rank has.
        forward_ms: Time of all its forwards.
        backward_ms: Time of all its backwards.
        note: What is assumed of them; may be empty.
    """

    layout: PipelineLayout
    forward_ms: tuple[float, ...]
    backward_ms: tuple[float, ...]
    note: str = ""

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
    words: list[str] = []
    for name, flag in _PIPELINE.items():
        value = arguments.get(name, "None")
        if value not in ("None", "False"):
            words += [flag, *([] if value == "True" else [value])]
    layout = pipeline_of(words).layout
    whole, one, copies = (_count(name, arguments[name]) for name in _BATCH)
    if whole % (one * copies):
        raise LayoutError(
            f"global_batch_size: {whole} is no multiple of micro_batch_size {one} times data_parallel_size "
            f"{copies}; give the log of one run"
        )
    ramp_up, samples = arguments.get("rampup_batch_size", "None"), _samples(text, whole)
    if ramp_up != "None" and len(samples) == 1:
        raise LayoutError(
            f"rampup_batch_size: is {ramp_up}, but no line of an iteration says its batch; keep them"
        )
    numbers = {position: each / (one * copies) for position, each in samples.items()}
    parts = RankTimes(layout, (), ()).parts
    (forward_ms, note), (backward_ms, _) = (
        _timer(text, name, parts, numbers) for name in (FORWARD, BACKWARD)
    )
    notes = [note] if note else []
    notes += [f"the last of {len(runs)} runs in the log counts"] if len(runs) > 1 else []
    return RankTimes(layout, forward_ms, backward_ms, " and ".join(notes))


def _runs(text: str) -> list[str]:
    """Return the text of each run: its arguments, and what follows up to the next ones."""
    found = [match for match in _ARGUMENT.finditer(text) if match[1] in (*_BATCH, *_PIPELINE)]
    starts = [
        after.start() for before, after in pairwise(found) if "-compute" in text[before.end() : after.start()]
    ]
    return [text[begin:end] for begin, end in pairwise([0, *starts, len(text)])]


def _samples(text: str, usual: int) -> dict[int, float]:
    """Return how many samples an iteration has from a position of the text on: from 0 on the usual batch."""
    found: dict[int, float] = {0: usual}
    iteration = consumed = 0
    for match in _ITERATION.finditer(text):
        number, samples, batch = (int(each or 0) for each in match.groups())
        is_next = 0 < iteration < number and consumed < samples
        found[match.end()] = (samples - consumed) / (number - iteration) if is_next else batch or usual
        iteration, consumed = number, samples
    return found


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise LayoutError(f"{name}: {text!r} is not a whole number above 0; give the log as it was written")
    return int(text)


def _time_ms(name: str, text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise LayoutError(f"{name}: {text!r} is not a time in ms; give the log as it was written")
    return float(text)


def _timer(
    text: str, name: str, parts: Sequence[str], numbers: Mapping[int, float]
) -> tuple[tuple[float, ...], str]:
    """Return the time of a micro-batch on each pipeline rank, and what is assumed.

    Args:
        text: Log of one run.
        name: The timer's.
        parts: See `RankTimes`.
        numbers: Micro-batches of an iteration from each position of the text on.
    """
    positions = list(numbers)

    def number(match: re.Match[str]) -> float:
        return numbers[positions[bisect(positions, match.start()) - 1]]

    every: list[Mapping[int, float]] = [
        {int(rank): _time_ms(name, time_ms) / number(block) for rank, time_ms in ranks}
        for block in re.finditer(_ALL.format(name), text, re.DOTALL | re.MULTILINE)
        if (ranks := _RANK.findall(block[1]))
    ]
    if every:
        steady = every[1:] or every
        # The end of the last report may be cut off.
        steady = steady[:-1] if 0 < len(steady[-1]) < len(steady[0]) else steady
        world = len(steady[0])
        if world % len(parts) or any(times.keys() != set(range(world)) for times in steady):
            raise LayoutError(
                f"{name}: has {world} ranks, and the pipeline {len(parts)}; give the log of one whole run"
            )
        of_rank = [median(times[rank] for times in steady) for rank in range(world)]
        share = world // len(parts)
        return tuple(mean(of_rank[i * share : (i + 1) * share]) for i in range(len(parts))), ""
    ranges = [
        (float(found[1]) / number(found), float(found[2]) / number(found))
        for found in re.finditer(_RANGE.format(name), text)
    ]
    if not ranges:
        raise LayoutError(
            f"{name}: is not in the log; train with --log-timing-level 2 --timing-log-option all"
        )
    counts = {each.count(LAYER) for each in parts}
    if len(parts) < 3 or len(counts) > 1 or any(MTP in each for each in parts):
        raise LayoutError(
            f"{name}: has only the times of the fastest and the slowest rank, which do not say "
            "whose they are here; train with --timing-log-option all"
        )
    steady_ranges = ranges[1:] or ranges
    low, high = (median(each[i] for each in steady_ranges) for i in range(2))
    note = "the slowest rank is that of the loss, and the embedding takes next to nothing"
    return (*[low] * (len(parts) - 1), high), note
