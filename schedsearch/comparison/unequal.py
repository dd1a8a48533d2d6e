"""Comparisons of micro-batches that differ: by hand as they come and sorted, and searched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from placements import Block, Placement
from placements.stages.stage_chain import PlacedStages, Stage, StageChain, exact, place
from schedsearch.comparison.course import (
    IN_SLICES,
    VARIANTS,
    ComparisonCourse,
    ShapeAttempt,
    UnplacedError,
    Variant,
)
from schedsearch.comparison.rows import DOES_NOT_FIT, ComparedRow, missing_memory, row_of
from schedsearch.core.answer import EndedBy, SearchProgress, SearchResult, Status
from schedsearch.core.objective import Objective
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule
from schedsearch.unequal.micro_batches import (
    MicroBatchError,
    MicroBatchRow,
    UnequalBatch,
    read_micro_batches,
    unequal_batch,
)
from schedsearch.unequal.replica_bound import replica_bound
from schedsearch.unequal.replica_work import ReplicaWork, replica_work
from schedsearch.unequal.replicas import ReplicaResult, replica_search, replicas_by_hand
from schedsearch.unequal.starts import AS_GIVEN, by_hand
from schedsearch.unequal.unequal_search import unequal_search


@dataclass(frozen=True)
class UnequalModel:
    """A model as each micro-batch of a batch takes it.

    Attributes:
        chains: The model for each of them.
        given_order: Whether each block runs them as they are numbered.
        replicas: Data-parallel replicas that share them; None for one pipeline that has all.
        max_micro_batches: The most that a replica may have; None for no limit.
    """

    chains: tuple[StageChain, ...]
    given_order: bool = False
    replicas: int | None = None
    max_micro_batches: int | None = None


def read_chains(
    stages: StageChain,
    path: str | Path,
    num_micro_batches: int | None = None,
    length_rules: str | Path | None = None,
) -> tuple[StageChain, ...]:
    """Return the model as each micro-batch of a file takes it, a stage for each device.

    The blocks of the file are those of the V-shape: F0 and B0 of the first stage, or I0 and W0 for the halves
    of its backward.

    Args:
        stages: The model; what is not in the file is as here.
        path: As of `schedsearch.unequal.micro_batches.read_micro_batches`, as for the rest.
        num_micro_batches: How many there must be; None for those of the file.
        length_rules: Rules for lengths; None for none.

    Raises:
        MicroBatchError: The file is wrong, or a block does not run in one of them.
        ProfileError: The rules are wrong.
        PlacementError: The stages have modes.
        StagesError: The stages cannot be one for each device.
    """
    chunks, _ = stages.in_chunks(stages.num_devices)
    chain = replace(stages, pieces=chunks, are_layers=False)
    errors: dict[bool, MicroBatchError] = {}
    for split in (True, False):
        placement = place(chain, "v_shape", split).placement
        unit_mib = placement.memory_unit_mib
        try:
            batch = read_micro_batches(path, placement, num_micro_batches, unit_mib, length_rules)
        except MicroBatchError as error:
            errors[split] = error
            continue
        return tuple(
            replace(chain, pieces=tuple(_pieces(chain, batch, n, split, path)))
            for n in range(batch.num_micro_batches)
        )
    raise errors[stages.knows_halves]


def _pieces(chain: StageChain, batch: UnequalBatch, n: int, split: bool, path: str | Path) -> list[Stage]:
    """Return the stages as a micro-batch takes them."""
    placement = batch.placement
    run = (placement.as_run(batch.chosen[n]) if batch.chosen else placement).by_name

    def ms(name: str) -> float:
        if name not in run:
            raise MicroBatchError(f"{path}: block {name} of micro-batch {n} does not run; give it a time")
        return round(placement.ms(run[name].time), 9)

    pieces = []
    for i, stage in enumerate(chain.pieces):
        backward, half = (ms(f"I{i}") + ms(f"W{i}"), ms(f"I{i}")) if split else (ms(f"B{i}"), None)
        if half is None and stage.input_gradient_ms is not None:
            half = round(backward * float(exact(stage.input_gradient_ms) / exact(stage.backward_ms)), 9)
        held = placement.mib(run[f"F{i}"].memory_on(i))
        pieces.append(
            replace(
                stage,
                forward_ms=ms(f"F{i}"),
                backward_ms=round(backward, 9),
                input_gradient_ms=half,
                activation_mib=held,
            )
        )
    return pieces


_NOT_DEFINED = "is not defined for these devices or this number of micro-batches"


@dataclass
class UnequalCourse(ComparisonCourse):
    """A comparison of micro-batches that differ.

    Attributes:
        model: The model as each of them takes it.
        batches: The micro-batches on each shape.
    """

    model: UnequalModel = field(default_factory=lambda: UnequalModel(()))
    batches: dict[Variant, UnequalBatch] = field(default_factory=dict)

    def made_rows(self, name: str) -> list[ComparedRow]:
        """Return the rows of a hand-made schedule, with the micro-batches as they come and sorted."""
        if name not in VARIANTS:
            return super().made_rows(name)
        variant = VARIANTS[name]
        try:
            placed, _ = self._placed(variant)
        except UnplacedError as error:
            return [ComparedRow(name, variant[0], note=str(error))]
        if self.model.replicas is not None:
            return self._shared_rows(name, variant, placed)
        found = [
            self._made(title, variant, placed, schedule)
            for title, schedule in by_hand(self.batches[variant], [name]).items()
            if not self.model.given_order or title.endswith(AS_GIVEN)
        ]
        return found or [ComparedRow(name, variant[0], note=_NOT_DEFINED)]

    def _shared_rows(self, name: str, variant: Variant, placed: PlacedStages) -> list[ComparedRow]:
        """Return the rows of a hand-made schedule on replicas: of the slowest one in each assignment."""
        found = []
        for title, each in replicas_by_hand(self._work(self.batches[variant]), [name]):
            if each is None:
                found.append(ComparedRow(title, variant[0], DOES_NOT_FIT, note="; ".join(placed.notes)))
                continue
            slowest = each.schedules[each.slowest(Objective.MAKESPAN)]
            assert slowest is not None, "it has micro-batches"
            notes = (f"the slowest of {self.model.replicas} replicas", *placed.notes)
            row = row_of(title, placed, slowest, "; ".join(notes))
            found.append(replace(row, makespan_bound_ms=self._bound_ms(variant, placed)))
        return found or [ComparedRow(name, variant[0], note=_NOT_DEFINED)]

    def _work(self, batch: UnequalBatch) -> ReplicaWork:
        return replica_work(batch, self.model.replicas or 1, self.model.max_micro_batches)

    def _made(
        self, title: str, variant: Variant, placed: PlacedStages, schedule: Schedule | None
    ) -> ComparedRow:
        if schedule is None:
            note = _why_not(title, placed, self.batches[variant])
            return ComparedRow(title, variant[0], DOES_NOT_FIT, note=note)
        self.offer(variant, schedule)
        row = row_of(title, placed, schedule, "; ".join(placed.notes))
        return replace(row, makespan_bound_ms=self._bound_ms(variant, placed))

    def _bound_ms(self, variant: Variant, placed: PlacedStages) -> float:
        if variant not in self.bound_ms:
            ticks = replica_bound(self._work(self.batches[variant]))
            self.bound_ms[variant] = placed.placement.ms(ticks)
        return self.bound_ms[variant]

    def _search(self, name: str, tried: ShapeAttempt) -> SearchResult:
        placement = tried.placed.placement
        batch = next(each for each in self.batches.values() if each.placement is placement)
        limits = self.limits.share() | {each: self.options[each] for each in self.options if each == "seed"}
        is_span = (self.options.get("objectives") or [""])[-1] == Objective.DEVICE_SPAN
        objective = Objective.DEVICE_SPAN if is_span else Objective.MAKESPAN

        def tell(progress: SearchProgress) -> None:
            self.report(name, placement, progress)

        if self.model.replicas is not None:
            shared = replica_search(self._work(batch), objective=objective, on_progress=tell, **limits)
            return _of_slowest(shared, objective)
        return unequal_search(
            batch,
            objective=objective,
            given_order=self.model.given_order,
            begin_with=tried.made,
            on_progress=tell,
            **limits,
        )

    def _placed(self, variant: Variant) -> tuple[PlacedStages, int]:
        if IN_SLICES in variant[0]:
            raise UnplacedError("cuts all sequences alike, and these micro-batches differ")
        placed, number = super()._placed(variant)
        if placed.num_samples > 1:
            raise UnplacedError("runs pairs of micro-batches, and these differ")
        if variant not in self.batches:
            rows = []
            for n, chain in enumerate(self.model.chains):
                own = place(chain, *variant, self.num_chunks).placement
                rows += [MicroBatchRow(n, *_figures(own, block)) for block in own.blocks]
            base = placed.placement
            self.batches[variant] = unequal_batch(base, rows, number, base.memory_unit_mib)
        return replace(placed, placement=self.batches[variant].placement), number


def _of_slowest(found: ReplicaResult, objective: Objective) -> SearchResult:
    """Return what was found on replicas as that of the slowest one."""
    best = found.found
    schedule = None if best is None else best.schedules[best.slowest(objective)]
    is_makespan = objective is Objective.MAKESPAN
    status = Status.UNKNOWN
    if best is not None:
        status = Status.OPTIMAL if best.value(objective) <= found.bound else Status.FEASIBLE
    return SearchResult(
        status=status,
        repetend=None,
        schedule=schedule,
        period_bound=0.0,
        span_bound=0,
        makespan_bound=found.bound if is_makespan else 0,
        device_span_bound=0 if is_makespan else found.bound,
        queries=0,
        seconds=found.seconds,
        work=found.work,
        ended_by=EndedBy(found.ended_by),
        reason="" if schedule else "no assignment to the replicas was found that fits the memory; raise it",
    )


def _figures(placement: Placement, block: Block) -> tuple[str, float, float]:
    """Return the name, the ms and the MiB of a block."""
    held = placement.mib(block.memory_on(block.devices[0]))
    return block.name, round(placement.ms(block.time), 9), held


def _why_not(title: str, placed: PlacedStages, batch: UnequalBatch) -> str:
    """Return what a schedule lacks that does not fit."""
    free = replace(batch, placement=replace(batch.placement, memory=None))
    made = by_hand(free, [title.partition(",")[0]])[title]
    missing = "" if made is None else missing_memory(placed, peak_memory(made).tolist())
    return "; ".join([missing or "its order comes to a standstill with these micro-batches", *placed.notes])
