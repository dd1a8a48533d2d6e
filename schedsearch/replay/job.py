"""A job's iterations, from the table of its trace: which replica ran which block of which micro-batch when.

Knows no search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from schedsearch.replay.clocks import ClockFit, Times, clock_offsets, fit_in_words
from schedsearch.schedule import Instance
from schedsearch.traces.table import BLOCK_KINDS, Span, TraceError, TraceTable


class MeasuredBlock(NamedTuple):
    """A block's start and time on a replica; if several ranks ran it together, their means.

    Attributes:
        start_ms: Start on the replica's clock.
        time_ms: Time that the block took.
    """

    start_ms: float
    time_ms: float

    @property
    def end_ms(self) -> float:
        """The block's end on the replica's clock."""
        return self.start_ms + self.time_ms


class ReplicaIteration(NamedTuple):
    """One iteration of one replica.

    Attributes:
        blocks: Its blocks; micro-batches are numbered from 0 on.
        around_ms: Time before the first and after the last block, by the kind of the operation.
        whole_ms: Time from its first operation of any kind to its last.
    """

    blocks: Mapping[Instance, MeasuredBlock]
    around_ms: Mapping[str, float]
    whole_ms: float

    @property
    def num_micro_batches(self) -> int:
        """Number of micro-batches of the replica."""
        return 1 + max(number for _, number in self.blocks)

    @property
    def measured_ms(self) -> float:
        """Time from the start of its first block to the end of its last one."""
        first = min(block.start_ms for block in self.blocks.values())
        return max(block.end_ms for block in self.blocks.values()) - first


class Job(NamedTuple):
    """A job's complete iterations.

    Attributes:
        name: Its name.
        device: Device of each block by the block's name: forwards in their order, then backwards in theirs.
        steps: For each iteration, by its number, the iteration of each replica.
        lines: Findings for the user, a line each: iterations that were left out, clocks that were aligned.
    """

    name: str
    device: Mapping[str, int]
    steps: Mapping[int, tuple[ReplicaIteration, ...]]
    lines: tuple[str, ...]

    @property
    def num_devices(self) -> int:
        """Devices of one replica's pipeline."""
        return 1 + max(self.device.values())

    @property
    def runs(self) -> list[ReplicaIteration]:
        """All iterations of all replicas."""
        return [run for step in self.steps.values() for run in step]


class _MissingError(Exception):
    """An iteration is incomplete or contradicts itself; the message names the block."""


class _Place(NamedTuple):
    """Where a rank stands: its replica, and its device in the replica's pipeline."""

    replica: int
    device: int


def job_of(table: TraceTable, tensor_parallel: int = 1) -> Job:
    """Return the iterations of a trace that are whole.

    Where the trace does not say it, an iteration ends when a rank begins a block of a micro-batch again, and
    micro-batches are numbered in the order in which a stage runs them. Clocks of ranks that differ are
    aligned by their messages; see `schedsearch.replay.clocks`.

    Args:
        table: The trace.
        tensor_parallel: Ranks that run each block together, where the trace does not say it.

    Raises:
        TraceError: No iteration is whole, or a stage is on no rank.
    """
    lines, spans = list[str](), defaultdict[int, list[Span]](list)
    for span in sorted(table.spans, key=lambda span: (span.start_ms, span.end_ms)):
        spans[span.rank].append(span)
    places = _places(table, spans, tensor_parallel, lines)
    stage_of = {place.device: _stages(spans[rank]) for rank, place in places.items()}
    is_split = any(span.kind == "I" for span in table.spans)
    stages = range(sum(map(len, stage_of.values())))
    names = [f"F{n}" for n in stages]
    names += [f"{kind}{n}" for n in reversed(stages) for kind in ("IW" if is_split else "B")]
    device = {name: n for name in names for n, stages in stage_of.items() if int(name[1:]) in stages}
    period, inputs = _micro_batches_of_iteration(spans, places), chain_inputs(device)
    steps: dict[int, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for rank, place in places.items():
        for span in _numbered(spans[rank], period):
            steps[span.iteration or 0][place.replica].append(span)
    iterations, fits = {}, list[ClockFit]()
    for number, step in sorted(steps.items()):
        try:
            runs = []
            for replica in sorted({place.replica for place in places.values()}):
                ranks = {rank: place.device for rank, place in places.items() if place.replica == replica}
                times = _times(replica, step[replica], ranks, device)
                fit = ClockFit({}, 0.0) if table.is_one_clock else clock_offsets(times, inputs)
                fits.append(fit)
                run = _replica_iteration(times, step[replica], fit, table.iteration_ms.get(number))
                _check_inputs(run, inputs, fit.uncertain_ms)
                runs.append(run)
            iterations[number] = tuple(runs)
        except _MissingError as error:
            lines.append(f"iteration {number} is left out: {error}")
    if not iterations:
        raise TraceError(
            f"{table.job}: has no iteration that is whole ({lines[-1] if lines else 'it has no blocks'}); "
            "give all blocks of one, of all ranks of a pipeline"
        )
    lines += fit_in_words(fits)
    return Job(table.job, device, iterations, (*table.lines, *(f"{table.job}: {line}" for line in lines)))


def chain_inputs(device: Mapping[str, int]) -> dict[str, str]:
    """Return the block whose output each block of a job takes: the one before it in the chain."""
    chain = [name for name in device if name[0] != "W"]
    weights = {name: f"I{name[1:]}" for name in device if name[0] == "W"}
    return dict(zip(chain[1:], chain, strict=False)) | weights


def _stages(spans: Iterable[Span]) -> frozenset[int]:
    return frozenset(span.stage for span in spans if span.kind in BLOCK_KINDS and span.stage is not None)


def _places(
    table: TraceTable, spans: Mapping[int, Sequence[Span]], tensor_parallel: int, lines: list[str]
) -> dict[int, _Place]:
    """Return the place of each rank that runs blocks, ranks of one place after another.

    Raises:
        TraceError: A stage is on no rank, or ranks have some of their stages in common.
    """
    groups: dict[frozenset[int], list[int]] = defaultdict(list)
    for rank in sorted(spans):
        if stages := _stages(spans[rank]):
            groups[stages].append(rank)
    counts = Counter(stage for stages in groups for stage in stages)
    if twice := [stage for stage, number in counts.items() if number > 1]:
        ranks = [rank for stages, ranks in groups.items() if twice[0] in stages for rank in ranks]
        raise TraceError(
            f"{table.job}: ranks {ranks[0]} and {ranks[-1]} both have stage {twice[0]}, but other stages "
            "differ; give the traces of one job, with all of its blocks"
        )
    wanted = max([*counts, (table.num_stages or 0) * (table.num_chunks or 1) - 1], default=0)
    if lacking := [stage for stage in range(wanted + 1) if stage not in counts]:
        raise TraceError(
            f"{table.job}: stage {lacking[0]} of {wanted + 1} is on no rank; give the traces of all ranks "
            "of a pipeline"
        )
    ordered = sorted(groups.items(), key=lambda group: min(group[0]))
    copies = min(map(len, groups.values()))
    if wrong := [ranks for _, ranks in ordered if len(ranks) % tensor_parallel]:
        raise TraceError(
            f"tensor_parallel: {tensor_parallel} ranks do not run a stage of {table.job}, which is on "
            f"{len(wrong[0])}; give the ranks that run each block together"
        )
    known = table.num_replicas or 0
    is_whole = bool(known) and all(len(ranks) % known == 0 for _, ranks in ordered)
    together = copies // known if is_whole else tensor_parallel
    if tensor_parallel not in (1, together):
        raise TraceError(
            f"tensor_parallel: {tensor_parallel} is not {together}, which {table.job} says; leave it out"
        )
    is_said = tensor_parallel == 1
    said = {s.rank: s.replica for s in table.spans if s.replica is not None and is_said}
    places = {
        rank: _Place(said.get(rank, number // together), device)
        for device, (_, ranks) in enumerate(ordered)
        for number, rank in enumerate(ranks)
    }
    devices = Counter(dict.fromkeys((place.replica, place.device) for place in places.values()))
    whole = [n for n, _ in devices if sum(replica == n for replica, _ in devices) == len(ordered)]
    if dropped := {place.replica for place in places.values()} - {*whole}:
        lines.append(f"replicas {sorted(dropped)} are left out: they lack a rank of the pipeline")
    there = len({*whole})
    if known and known != there:
        lines.append(f"has {there} of the job's {known} replicas; these are replayed")
    elif not known and there > 1 and not said:
        lines.append(f"{there} ranks run each stage; taken as data-parallel copies (see tensor_parallel)")
    return {rank: place for rank, place in places.items() if place.replica in whole}


def _micro_batches_of_iteration(
    spans: Mapping[int, Sequence[Span]], places: Mapping[int, _Place]
) -> int | None:
    """Return the micro-batches of an iteration where neither these nor iterations are numbered.

    The first device has run as many backwards as forwards at the end of an iteration, and not before.

    Raises:
        TraceError: The trace ends before that.
    """
    rank = next(rank for rank, place in places.items() if not place.device)
    blocks = [span for span in spans[rank] if span.kind in BLOCK_KINDS and span.stage == 0]
    if all(span.micro_batch is not None or span.iteration is not None for span in blocks):
        return None
    begun = ended = 0
    for span in blocks:
        begun, ended = begun + (span.kind == "F"), ended + (span.kind in "BI")
        if begun and begun == ended:
            return begun
    raise TraceError(f"rank {rank} has {begun} forwards and {ended} backwards; give one whole iteration")


def _numbered(spans: Sequence[Span], period: int | None) -> Iterator[Span]:
    """Yield a rank's operations with the numbers of their iterations, and blocks with their micro-batches'.

    Args:
        spans: The operations by their begins.
        period: Micro-batches of an iteration where nothing is numbered.
    """
    blocks = [span for span in spans if span.kind in BLOCK_KINDS and span.stage is not None]
    runs = Counter[tuple[object, ...]]()
    for index, span in enumerate(blocks):
        if span.micro_batch is None:
            key = (span.stage, span.kind, span.iteration)
            iteration, number = divmod(runs[key], period) if period else (span.iteration, runs[key])
            runs[key] += 1
            blocks[index] = span._replace(iteration=iteration, micro_batch=number)
    now, seen, begins = 0, set[tuple[object, ...]](), list[tuple[float, int]]()
    first = min(blocks, key=lambda span: (span.stage, span.kind != "F", span.micro_batch))
    for span in blocks:
        place = (span.stage, span.kind, span.micro_batch)
        if span.iteration is None:
            is_cut = place == first[1:4] and not now and any(kind != "F" for _, kind, _ in seen)
            if place in seen or (is_cut and first[1:4] not in seen):
                now, seen = now + 1, set()
            seen.add(place)
            span = span._replace(iteration=now)
        if not begins or begins[-1][1] != span.iteration:
            begins.append((span.start_ms, span.iteration or 0))
        yield span
    starts = [start_ms for start_ms, _ in begins]
    for span in spans:
        if span.kind not in BLOCK_KINDS:
            # data are read for the iteration that begins next, all else belongs to the last that began
            index = bisect_right(starts, span.start_ms) - (span.kind != "data")
            number = begins[min(max(index, 0), len(begins) - 1)][1]
            yield span if span.iteration is not None else span._replace(iteration=number)


def _times(replica: int, spans: Sequence[Span], ranks: Mapping[int, int], device: Mapping[str, int]) -> Times:
    """Return start and end of each block of an iteration on each of a replica's ranks.

    The whole backward of a stage whose other backwards are split is divided as these are on average.

    Raises:
        _MissingError: A block is missing or twice there.
    """
    times: dict[Instance, dict[int, tuple[float, float]]] = defaultdict(dict)
    is_split = any(name[0] == "I" for name in device)
    halves = {kind: [s.end_ms - s.start_ms for s in spans if s.kind == kind] for kind in "IW"}
    inputs = sum(halves["I"]) / max(sum(halves["I"]) + sum(halves["W"]), 1e-9) if halves["W"] else 0.5
    for span in spans:
        if span.kind not in BLOCK_KINDS:
            continue
        parts = [(span.kind, span.start_ms, span.end_ms)]
        if is_split and span.kind == "B":
            middle = span.start_ms + inputs * (span.end_ms - span.start_ms)
            parts = [("I", span.start_ms, middle), ("W", middle, span.end_ms)]
        for kind, start_ms, end_ms in parts:
            instance = f"{kind}{span.stage}", span.micro_batch or 0
            if span.rank in times[instance]:
                raise _MissingError(
                    f"{instance[0]} of micro-batch {instance[1]} is there twice on rank {span.rank}"
                )
            times[instance][span.rank] = (start_ms, end_ms)
    if not times:
        raise _MissingError(f"replica {replica} has no blocks")
    for number in {number for _, number in times}:
        for name, here in device.items():
            for rank in (rank for rank, place in ranks.items() if place == here):
                if rank not in times.get((name, number), {}):
                    raise _MissingError(f"{name} of micro-batch {number} on rank {rank} is missing")
    return times


def _check_inputs(run: ReplicaIteration, inputs: Mapping[str, str], uncertain_ms: float) -> None:
    """Check that blocks begin after their inputs, but for errors of clocks, or of up to half a block.

    Raises:
        _MissingError: One begins too early.
    """
    for (name, number), block in run.blocks.items():
        if name in inputs:
            source = run.blocks[inputs[name], number]
            early_ms = source.end_ms - block.start_ms
            allowed_ms = min(max(source.time_ms / 2, 2 * uncertain_ms), source.time_ms)
            if early_ms > allowed_ms:
                raise _MissingError(
                    f"{name} of micro-batch {number} begins {early_ms:.4g} ms before the end of "
                    f"{inputs[name]}, whose output it takes"
                )


def _replica_iteration(
    times: Times, spans: Sequence[Span], fit: ClockFit, whole_ms: float | None
) -> ReplicaIteration:
    """Return a replica's iteration on one clock, with micro-batches from 0 on and the means of its ranks."""
    places = {number: place for place, number in enumerate(sorted({number for _, number in times}))}
    blocks = {}
    for (name, number), of_ranks in times.items():
        start_ms = fmean(start + fit.offset_ms.get(rank, 0.0) for rank, (start, _) in of_ranks.items())
        blocks[name, places[number]] = MeasuredBlock(start_ms, fmean(e - s for s, e in of_ranks.values()))
    first, last = min(b.start_ms for b in blocks.values()), max(b.end_ms for b in blocks.values())
    shifted = [
        span._replace(start_ms=span.start_ms + offset, end_ms=span.end_ms + offset)
        for span in spans
        for offset in [fit.offset_ms.get(span.rank, 0.0)]
    ]
    final = max(shifted, key=lambda span: span.end_ms)
    around, before, after = defaultdict[str, float](float), -float("inf"), last
    for span in sorted((span for span in shifted if span.rank == final.rank), key=lambda s: s.start_ms):
        if span.kind not in BLOCK_KINDS:
            around[span.kind] += max(0.0, min(span.end_ms, first) - max(span.start_ms, before))
            around[span.kind] += max(0.0, span.end_ms - max(span.start_ms, after))
            before, after = max(before, span.end_ms), max(after, span.end_ms)
    begin = min(span.start_ms for span in shifted)
    return ReplicaIteration(blocks, dict(around), whole_ms or max(final.end_ms, last) - min(begin, first))
