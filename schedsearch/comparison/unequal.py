"""Comparisons for micro-batches that differ: hand-made schedules in given and sorted order, and searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from placements.stages.stage_chain import PlacedStages, Stage, StageChain, exact, place
from schedsearch.comparison.course import (
    IN_SLICES,
    ComparisonCourse,
    ShapeAttempt,
    UnplacedError,
    Variant,
)
from schedsearch.comparison.rows import DOES_NOT_FIT, ComparedRow, joined, missing_memory, row_of
from schedsearch.core.answer import Answer, SearchReport
from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule
from schedsearch.searches.search import find
from schedsearch.unequal.micro_batches import (
    MicroBatchError,
    MicroBatchRow,
    read_micro_batches,
    unequal_batch,
)
from schedsearch.unequal.replica_bound import replica_bound
from schedsearch.unequal.replica_work import ReplicaWork, replica_work
from schedsearch.unequal.starts import by_hand, replicas_by_hand
from schedsearch.unequal.unequal_search import replica_search


@dataclass(frozen=True)
class UnequalModel:
    """A model with separate times and memory for each micro-batch of a batch.

    Attributes:
        chains: The stages with the costs of each micro-batch.
        replicas: Data-parallel replicas that share the micro-batches; None for one pipeline with all of them.
        max_micro_batches: Most micro-batches of one replica; None for no limit.
    """

    chains: tuple[StageChain, ...]
    replicas: int | None = None
    max_micro_batches: int | None = None


def read_chains(
    stages: StageChain,
    path: str | Path,
    num_micro_batches: int | None = None,
    length_rules: str | Path | None = None,
) -> tuple[StageChain, ...]:
    """Read a file of micro-batches; return for each one the model's stages, one a device, with its costs.

    The blocks of the file are those of the V-shape: F0 and B0 of the first stage, or I0 and W0 for the halves
    of its backward.

    Args:
        stages: The model; figures that are not in the file are taken from here.
        path: As of `schedsearch.unequal.micro_batches.read_micro_batches`, as for the rest.
        num_micro_batches: Required number of micro-batches; None for the file's own number.
        length_rules: Rules for lengths; None for none.

    Raises:
        MicroBatchError: The file is wrong, or a block does not run in one of them.
        ProfileError: The rules are wrong.
        PlacementError: The stages have modes.
        StagesError: The stages cannot be one for each device.
    """
    chunks, _ = stages.in_chunks(stages.num_devices)
    chain = replace(stages, stages=chunks, layers=())
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
            replace(chain, stages=tuple(_pieces(chain, batch, n, split, path)))
            for n in range(batch.num_micro_batches)
        )
    raise errors[stages.knows_halves]


def _pieces(chain: StageChain, batch: Problem, n: int, split: bool, path: str | Path) -> list[Stage]:
    """Return the stages with the times (ms) and activation memory (MiB) of one micro-batch."""
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


@dataclass
class UnequalCourse(ComparisonCourse):
    """A comparison of micro-batches that differ.

    Attributes:
        model: The model with the costs of each micro-batch.
        batches: The micro-batches on each shape.
    """

    model: UnequalModel = field(default_factory=lambda: UnequalModel(()))
    batches: dict[Variant, Problem] = field(default_factory=dict)

    def by_hand(self, name: str, placed: PlacedStages, number: int) -> Iterator[ComparedRow]:
        """Yield the rows of a hand-made schedule, with its micro-batches in the given order and sorted.

        With replicas, a row is of the slowest replica under a usual assignment of micro-batches.
        """
        batch, replicas = self._batch(placed), self.model.replicas
        of: dict[str, Schedule | None] = {}
        if replicas is not None:
            for title, shared in replicas_by_hand(self._work(placed), [name]).items():
                of[title] = None if shared is None else shared.of_slowest(Objective.MAKESPAN)
        else:
            of = by_hand(batch, [name])
        slowest = "" if replicas is None else f"the slowest of {replicas} replicas"
        for title, schedule in of.items():
            if schedule is None:
                why = _why_not(title, placed, batch) if replicas is None else ""
                yield ComparedRow(title, proved=DOES_NOT_FIT, note=joined(why, *placed.notes))
            else:
                yield row_of(title, placed, schedule, joined(slowest, *placed.notes))
        if not of:
            yield ComparedRow(name, note="is not defined for these devices or this number of micro-batches")

    def _batch(self, placed: PlacedStages) -> Problem:
        """Return the micro-batches on a shape."""
        return next(batch for batch in self.batches.values() if batch.placement is placed.placement)

    def _work(self, placed: PlacedStages) -> ReplicaWork:
        return replica_work(self._batch(placed), self.model.replicas or 1, self.model.max_micro_batches)

    def bound(self, placed: PlacedStages) -> int:
        """Return a lower bound in ticks over all orders and assignments on a shape."""
        return replica_bound(self._work(placed))

    def search(self, tried: ShapeAttempt, limits: Mapping[str, Any]) -> Callable[[SearchReport], Answer]:
        """Return the search of the order on a shape, or of the assignment to replicas too."""
        is_span = (self.options.get("objectives") or [""])[-1] == Objective.DEVICE_SPAN
        options = {option: self.options[option] for option in self.options if option == "seed"} | dict(limits)
        options["objectives"] = [Objective.DEVICE_SPAN if is_span else Objective.MAKESPAN]
        if self.model.replicas is not None:
            return partial(_assigned, self._work(tried.placed), options)
        problem = replace(self._batch(tried.placed), begin_with=tried.made, **options)
        return partial(find, problem)

    def placed(self, variant: Variant) -> tuple[PlacedStages, int]:
        """Return the model on a shape with these micro-batches, and their number."""
        if IN_SLICES in variant[0]:
            raise UnplacedError("cuts all sequences alike, and these micro-batches differ")
        placed, number = super().placed(variant)
        if placed.num_samples > 1:
            raise UnplacedError("runs pairs of micro-batches, and these differ")
        if variant not in self.batches:
            rows = []
            for n, chain in enumerate(self.model.chains):
                placement = place(chain, *variant, self.num_chunks).placement
                for block in placement.blocks:
                    held_mib = placement.mib(block.memory_on(block.devices[0]))
                    rows.append(MicroBatchRow(n, block.name, round(placement.ms(block.time), 9), held_mib))
            base = placed.placement
            self.batches[variant] = unequal_batch(base, rows, number, base.memory_unit_mib)
        return replace(placed, placement=self.batches[variant].placement), number


def _assigned(work: ReplicaWork, options: Mapping[str, Any], report: SearchReport) -> Answer:
    return replica_search(work, on_progress=report, **options)[1]


def _why_not(title: str, placed: PlacedStages, batch: Problem) -> str:
    """Return in words why a hand-made schedule does not fit: missing memory, or an order that deadlocks."""
    free = replace(batch, placement=replace(batch.placement, memory=None))
    made = by_hand(free, [title.partition(",")[0]])[title]
    missing = "" if made is None else missing_memory(placed, peak_memory(made).tolist())
    return missing or "its order comes to a standstill with these micro-batches"
