"""A placement with all decisions taken and one device per stream, for strategies that know neither."""

from __future__ import annotations

from dataclasses import dataclass, replace

from placements import Block, Kind, Placement
from placements.modes import Chosen
from schedsearch.core.answer import Answer
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance, Schedule, ScheduledBlock
from schedsearch.validate import validate

_MARK = " of "


@dataclass(frozen=True)
class Lowered:
    """A plain placement, one micro-batch of which is several of a whole placement, each with chosen modes.

    Attributes:
        whole: The whole placement, with decisions and streams.
        chosen: The choices of each of its micro-batches in one plain micro-batch.
        plain: The plain placement: a lane is a device, and each of these micro-batches has blocks of its own.
    """

    whole: Placement
    chosen: tuple[Chosen, ...]
    plain: Placement

    @classmethod
    def of(cls, whole: Placement, chosen: tuple[Chosen, ...]) -> Lowered | None:
        """Return a placement lowered; None where streams share a memory, which no plain placement can say.

        The choices of a micro-batch are empty where nothing is to be decided.
        """
        placed = [lanes for modes in chosen if (lanes := whole.as_run(modes).by_lane) is not None]
        if len(placed) < len(chosen) or len({placement.num_devices for placement in placed}) > 1:
            return None  # the latter where a mode leaves a lane without blocks
        if len(placed) == 1:
            return cls(whole, chosen, placed[0])
        optimizer = {block.name for block in placed[0].optimizer_blocks}
        names = [
            {block.name: f"{block.name}{_MARK}{n}" for block in plain.blocks}
            for n, plain in enumerate(placed)
        ]
        names = [name_of | {name: name for name in optimizer} for name_of in names]
        blocks: list[Block] = []
        transfer = []
        for name_of, plain in zip(names, placed, strict=True):
            for block in plain.per_micro_batch.blocks:
                after = tuple(name_of[name] for name in block.after)
                blocks.append(replace(block, name=name_of[block.name], after=after))
            transfer += [(name_of[a], name_of[b], ticks) for a, b, ticks in plain.per_micro_batch.transfer]
        for block in placed[0].optimizer_blocks:
            sources = [
                name_of[name]
                for name_of, plain in zip(names, placed, strict=True)
                for name in plain.by_name[block.name].after
            ]
            blocks.append(replace(block, after=tuple(dict.fromkeys(sources))))
        return cls(whole, chosen, replace(placed[0], blocks=tuple(blocks), transfer=tuple(transfer)))

    def original(self, name: str) -> tuple[str, int]:
        """Return the name that a block of the plain placement has in the whole, and its micro-batch."""
        if len(self.chosen) == 1:
            return name, 0
        original, _, number = name.rpartition(_MARK)
        return original, int(number)

    def _lowered(self, name: str, micro_batch: int) -> Instance:
        """Return the plain placement's block and micro-batch for an instance of the whole placement."""
        size = len(self.chosen)
        return f"{name}{_MARK}{micro_batch % size}" if size > 1 else name, micro_batch // size

    def repetend(self, repetend: Repetend) -> Repetend:
        """Return a repetend of the plain placement as one of the whole placement."""
        size, whole = len(self.chosen), self.whole.per_micro_batch
        first: dict[Instance, int] = {}
        for (name, n), start in repetend.first_starts.items():
            original, number = self.original(name)
            first[original, n * size + number] = start
        chosen = self.chosen * repetend.micro_batches if self.whole.decisions else ()
        micro_batches = size * repetend.micro_batches
        return Repetend.from_first_starts(whole, micro_batches, repetend.period, first, chosen)

    def lowered_repetend(self, repetend: Repetend) -> Repetend:
        """Return a repetend of the whole placement, with these modes, as one of the plain placement."""
        first = {self._lowered(*instance): start for instance, start in repetend.first_starts.items()}
        size = repetend.micro_batches // len(self.chosen)
        return Repetend.from_first_starts(self.plain.per_micro_batch, size, repetend.period, first)

    def schedule(self, schedule: Schedule) -> Schedule:
        """Return a schedule of the plain placement as one of the whole placement."""
        size, blocks = len(self.chosen), []
        number_of = schedule.num_micro_batches * size
        for start, n, name in schedule.blocks:
            if schedule.placement.by_name[name].kind is Kind.O:
                blocks.append(ScheduledBlock(start, number_of - 1, name))
            else:
                original, number = self.original(name)
                blocks.append(ScheduledBlock(start, n * size + number, original))
        chosen = self.chosen * schedule.num_micro_batches if self.whole.decisions else ()
        whole = self.whole if schedule.placement.optimizer_blocks else self.whole.per_micro_batch
        return Schedule(whole, number_of, tuple(blocks), chosen)

    def lowered_schedule(self, schedule: Schedule) -> Schedule:
        """Return a schedule of the whole placement, with these modes, on the plain one."""
        size, optimizer = len(self.chosen), {block.name for block in self.plain.optimizer_blocks}
        blocks = []
        for start, n, name in schedule.blocks:
            lowered = (name, n // size) if name in optimizer else self._lowered(name, n)
            blocks.append(ScheduledBlock(start, lowered[1], lowered[0]))
        plain = self.plain if schedule.placement.optimizer_blocks else self.plain.per_micro_batch
        return Schedule(plain, schedule.num_micro_batches // size, tuple(blocks))

    def lower(self, given: Schedule | Answer) -> Schedule | Answer:
        """Return a schedule or answer of the whole placement on the plain one, for one choice of modes."""
        assert len(self.chosen) == 1
        if isinstance(given, Schedule):
            return self.lowered_schedule(given)
        schedule, repetend = given.schedule, given.repetend
        return replace(
            given,
            schedule=None if schedule is None else self.lowered_schedule(schedule),
            repetend=None if repetend is None else self.lowered_repetend(repetend),
        )

    def lift(self, answer: Answer) -> Answer:
        """Return the answer for the plain placement as an answer for the whole one."""
        schedule, repetend = answer.schedule, answer.repetend
        return replace(
            answer,
            schedule=None if schedule is None else validate(self.schedule(schedule)),
            repetend=None if repetend is None else self.repetend(repetend),
        )
