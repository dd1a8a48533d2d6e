"""A placement with its decisions taken and a device for each stream: what plain strategies can work on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from placements import Block, Kind, Placement
from placements.modes import Chosen
from schedsearch.core.answer import EndedBy, SearchReport, SearchResult, Status
from schedsearch.core.objective import Objective
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.load_and_path import critical_path, period_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance, Schedule, ScheduledBlock, as_soon_as_possible
from schedsearch.validate import validate


@dataclass(frozen=True)
class Lowered:
    """A placement in which each micro-batch is some micro-batches of another, with the modes of each chosen.

    Attributes:
        whole: The other, with decisions and streams.
        chosen: The choices of each of these micro-batches.
        plain: Neither; each lane is a device, and each block of each micro-batch a block.
    """

    whole: Placement
    chosen: tuple[Chosen, ...]
    plain: Placement

    @classmethod
    def of(cls, whole: Placement, chosen: tuple[Chosen, ...]) -> Lowered | None:
        """Return a placement lowered; None where streams share a memory, which no plain placement can say.

        Args:
            whole: With decisions, streams or both.
            chosen: The choices of each micro-batch; an empty one where nothing is to be decided.
        """
        lanes = [whole.as_run(each).by_lane for each in chosen]
        if any(each is None for each in lanes):
            return None
        placed = [each for each in lanes if each is not None]
        if len({each.num_devices for each in placed}) > 1:
            return None  # a mode leaves a lane without blocks
        if len(placed) == 1:
            return cls(whole, chosen, placed[0])
        blocks: list[Block] = []
        transfer = []
        for n, each in enumerate(placed):
            for block in each.per_micro_batch.blocks:
                after = tuple(_name(name, n) for name in block.after)
                blocks.append(replace(block, name=_name(block.name, n), after=after))
            transfer += [(_name(a, n), _name(b, n), ticks) for a, b, ticks in each.per_micro_batch.transfer]
        optimizer = {block.name for block in placed[0].optimizer_blocks}
        for block in placed[0].optimizer_blocks:
            sources = [
                name if name in optimizer else _name(name, n)
                for n, each in enumerate(placed)
                for name in each.by_name[block.name].after
                if name not in optimizer or not n
            ]
            blocks.append(replace(block, after=tuple(sources)))
        plain = replace(placed[0], blocks=tuple(blocks), transfer=tuple(transfer))
        return cls(whole, chosen, plain)

    def repetend(self, found: Repetend) -> Repetend:
        """Return a repetend of the plain placement as one of the whole placement."""
        size = len(self.chosen)
        first: dict[Instance, int] = {}
        for (name, n), start in found.first_starts.items():
            own, number = self.own(name)
            first[own, n * size + number] = start
        chosen = self.chosen * found.micro_batches if self.whole.decisions else ()
        whole = self.whole.per_micro_batch
        return Repetend.from_first_starts(whole, size * found.micro_batches, found.period, first, chosen)

    def lowered_repetend(self, repetend: Repetend) -> Repetend:
        """Return a repetend of the whole placement, with these modes, as one of the plain placement."""
        size = len(self.chosen)
        first = {
            (_name(name, n % size) if size > 1 else name, n // size): start
            for (name, n), start in repetend.first_starts.items()
        }
        return Repetend.from_first_starts(
            self.plain.per_micro_batch, repetend.micro_batches // size, repetend.period, first
        )

    def schedule(self, found: Schedule) -> Schedule:
        """Return a schedule of the plain placement as one of the whole placement."""
        size, blocks = len(self.chosen), []
        number_of = found.num_micro_batches * size
        for start, n, name in found.blocks:
            if found.placement.by_name[name].kind is Kind.O:
                blocks.append(ScheduledBlock(start, number_of - 1, name))
            else:
                own, number = self.own(name)
                blocks.append(ScheduledBlock(start, n * size + number, own))
        chosen = self.chosen * found.num_micro_batches if self.whole.decisions else ()
        whole = self.whole if len(found.placement.optimizer_blocks) else self.whole.per_micro_batch
        return Schedule(whole, number_of, tuple(blocks), chosen)

    def lower(self, found: Schedule | SearchResult) -> Schedule | SearchResult:
        """Return what the whole placement ran with these modes, of one micro-batch, as the plain one does."""
        assert len(self.chosen) == 1
        if isinstance(found, Schedule):
            return self.lowered_schedule(found)
        schedule, repetend = found.schedule, found.repetend
        return replace(
            found,
            schedule=None if schedule is None else self.lowered_schedule(schedule),
            repetend=None if repetend is None else self.lowered_repetend(repetend),
        )

    def lowered_schedule(self, schedule: Schedule) -> Schedule:
        """Return a schedule of the whole placement, with these modes, on the plain one."""
        size, optimizer = len(self.chosen), {block.name for block in self.plain.optimizer_blocks}
        blocks = [
            ScheduledBlock(
                start, n // size, _name(name, n % size) if size > 1 and name not in optimizer else name
            )
            for start, n, name in schedule.blocks
        ]
        plain = self.plain if schedule.placement.optimizer_blocks else self.plain.per_micro_batch
        return Schedule(plain, schedule.num_micro_batches // size, tuple(blocks))

    def lift(self, found: SearchResult) -> SearchResult:
        """Return what a search of the plain placement found as an answer for the whole one."""
        schedule, repetend = found.schedule, found.repetend
        return replace(
            found,
            schedule=None if schedule is None else validate(self.schedule(schedule)),
            repetend=None if repetend is None else self.repetend(repetend),
        )

    def own(self, name: str) -> tuple[str, int]:
        """Return the name that a block of the plain placement has in the whole, and its micro-batch."""
        if len(self.chosen) == 1:
            return name, 0
        own, _, number = name.rpartition(_MARK)
        return own, int(number)


@dataclass(frozen=True)
class AtWorst:
    """A placement whose streams slow each other down, searched with each block as slow as it can become.

    Orders that are found so are then run as they are: no block starts later. What the search proves is of the
    slow blocks; of this placement only bounds hold that know how little its streams may lose.

    Attributes:
        whole: The placement.
    """

    whole: Placement

    @property
    def plain(self) -> Placement:
        """What is searched."""
        return self.whole.at_worst

    def lower(self, found: Schedule | SearchResult) -> Schedule | SearchResult:
        """Return the orders of a schedule with each block as slow as it can become."""
        if isinstance(found, Schedule):
            return _in_its_orders(self.plain, found)
        schedule, repetend = found.schedule, found.repetend
        return replace(
            found,
            schedule=None if schedule is None else _in_its_orders(self.plain, schedule),
            repetend=None if repetend is None else replace(repetend, placement=self.plain.per_micro_batch),
        )

    def told(self, report: SearchReport, num_micro_batches: int) -> SearchReport:
        """Return who is told of a search of the slow blocks, with what is proved of the placement itself."""
        path, period = critical_path(self.whole), float(period_bound(self.whole))
        proved = {Objective.PERIOD: period, Objective.MAKESPAN: makespan_bound(self.whole, num_micro_batches)}
        return lambda event: report(
            replace(event, bound=min(event.bound, proved.get(Objective(event.phase), path)))
        )

    def lift(self, found: SearchResult) -> SearchResult:
        """Return what was found with what is proved of the placement itself.

        Its repetend is what the orders come to in the long run, where that repeats; else it is the slow one.
        """
        placement = self.whole
        if found.schedule is None or found.status not in (Status.OPTIMAL, Status.FEASIBLE):
            return found
        schedule = validate(_in_its_orders(placement, found.schedule))
        number = schedule.num_micro_batches
        bound, repetend = period_bound(placement), found.repetend
        if repetend is not None:
            repetend = _in_the_long_run(placement, repetend, len(found.sizes) > 1) or repetend
        is_least = repetend is not None and repetend.period_per_micro_batch <= bound
        return replace(
            found,
            status=Status.OPTIMAL if is_least else Status.FEASIBLE,
            ended_by=EndedBy.NOTHING_LEFT
            if found.ended_by is EndedBy.PROOF and not is_least
            else found.ended_by,
            schedule=schedule,
            repetend=repetend,
            period_bound=float(bound),
            universal_bound=float(bound),
            makespan_bound=makespan_bound(placement, number),
            device_span_bound=device_span_bound(placement, number),
            span_bound=critical_path(placement),
            min_period=None,
            tried=tuple(
                replace(each, bound=math.ceil(bound * each.micro_batches), refuted=None)
                for each in found.tried
            ),
        )


_MOST_ROUNDS = 4
"""Rounds of a repetend after which its starts may come again, where streams slow each other down."""

_SETTLING = 12
"""Rounds that the starts have to settle, besides those in flight."""


def _in_the_long_run(placement: Placement, slow: Repetend, may_grow: bool) -> Repetend | None:
    """Return the steady state that the orders of a repetend come to, if its starts come again.

    Proof that they go on so: what starts next, and when, depends on the last rounds in flight alone. If all
    starts in so many rounds come again after the same ticks, so do all that follow.

    Args:
        placement: With streams that slow each other down.
        slow: A repetend of it, with each block as slow as it can become.
        may_grow: Whether several of its rounds may make one of the steady state.
    """
    size, flight = slow.micro_batches, slow.in_flight
    rounds = 3 * (flight + _MOST_ROUNDS) + _SETTLING
    starts = _in_its_orders(placement.per_micro_batch, slow.unroll(rounds * size)).start_of
    last = rounds - flight - 1  # after it fewer micro-batches run beside each other
    for several in range(1, _MOST_ROUNDS + 1 if may_grow else 2):
        first = last - flight - several
        periods = {
            start - starts[name, n - several * size]
            for (name, n), start in starts.items()
            if first * size <= n < last * size
        }
        if len(periods) > 1:
            continue
        begin = (last - several) * size
        return Repetend.from_first_starts(
            placement.per_micro_batch,
            several * size,
            min(periods),
            {(name, n - begin): starts[name, n] for name, n in starts if begin <= n < begin + several * size},
            slow.chosen * several,
        )
    return None


def _in_its_orders(placement: Placement, schedule: Schedule) -> Schedule:
    """Return a schedule with the orders of another, every block as soon as it can."""
    placed = placement if schedule.placement.optimizer_blocks else placement.per_micro_batch
    return as_soon_as_possible(
        placed, schedule.num_micro_batches, schedule.lane_orders, schedule.chosen, schedule.memory_waits
    )


_MARK = " of "


def _name(name: str, micro_batch: int) -> str:
    return f"{name}{_MARK}{micro_batch}"
