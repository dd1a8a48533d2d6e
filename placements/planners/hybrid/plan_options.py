"""Options of a search for plans, and its results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from placements.hardware import RESERVE_GIB
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy
from placements.planners.division import ROUNDING
from placements.planners.hybrid.decision_trees import TreeOptions
from placements.planners.hybrid.plan import Plan, PlanError

METHODS = ("exact", "bmw", "base", "memory")
"""Methods to divide layers into stages: with the least time; by Galvatron-BMW's Alg. 2, or evenly where that
is better; evenly in time, whatever memory each stage has (its Alg. 1); evenly in memory, as its Alg. 2
begins."""

STAGE_METHODS = ("exact", "paper")
"""Methods to find strategies inside a stage: the best, or by Galvatron-BMW's programme."""

PIPELINES = ("1f1b", "gpipe")
"""Number of micro-batches that a stage holds at once: the number of stages from it on, or all."""

OUT_OF_MEMORY = "out of memory: "
"""Begin of a trial's reason where memory is short."""


@dataclass(frozen=True)
class PlanOptions:
    """Options of a search for plans.

    Attributes:
        trees: How GPUs may share a layer.
        num_stages: Numbers of stages to try; None for all, as for the next two.
        num_micro_batches: Those that do not divide the batch are left out.
        method: One of `METHODS`.
        stage_method: One of `STAGE_METHODS`.
        pipeline: One of `PIPELINES`.
        idle_gpus: GPUs may stay idle.
        memory_gib: Memory of each GPU; None for its own.
        reserve_gib: Memory that neither states nor activations may use.
        num_plans: Plans to return; they differ in their numbers of stages, GPUs or micro-batches.
        time_limit_s: After which the search ends with the best plans so far; where schedules are searched
            too, of all together.

    Raises:
        PlanError: An option is out of its range.
    """

    trees: TreeOptions = field(default_factory=lambda: TreeOptions(sequence_parallel=True))
    num_stages: tuple[int, ...] | None = None
    gpus_per_stage: tuple[int, ...] | None = None
    num_micro_batches: tuple[int, ...] | None = None
    method: str = "exact"
    stage_method: str = "exact"
    pipeline: str = "1f1b"
    idle_gpus: bool = True
    memory_gib: float | None = None
    reserve_gib: float = RESERVE_GIB
    num_plans: int = 5
    time_limit_s: float = 120.0

    def __post_init__(self) -> None:
        """Check names and numbers."""
        for name, known in (("method", METHODS), ("stage_method", STAGE_METHODS), ("pipeline", PIPELINES)):
            if getattr(self, name) not in known:
                raise PlanError(f"{name}: {getattr(self, name)!r} is not known; use {' or '.join(known)}")
        for name in ("num_stages", "gpus_per_stage", "num_micro_batches"):
            for value in getattr(self, name) or ():
                if type(value) is not int or value < 1:
                    raise PlanError(f"{name}: {value!r} is not a whole number of at least 1; give one")
        if self.num_plans < 1:
            raise PlanError(f"num_plans: {self.num_plans} is not at least 1; give 1 or more")
        if not self.time_limit_s > 0:
            raise PlanError(f"time_limit_s: {self.time_limit_s:g} is not above 0; give a number of seconds")
        if self.memory_gib is not None and not self.memory_gib > self.reserve_gib:
            fault = f"{self.memory_gib:g} is not above reserve_gib {self.reserve_gib:g}"
            raise PlanError(f"memory_gib: {fault}; give more, or a smaller reserve")


class StageEstimate(NamedTuple):
    """Cost that a stage is taken to have.

    Attributes:
        time_ms: Forward and backward of one micro-batch.
        update_ms: Gradients exchanged and weights updated, once in an iteration.
        peak_mib: Most memory of one of its GPUs.
        in_flight: Micro-batches whose activations it then holds.
    """

    time_ms: float
    update_ms: float
    peak_mib: float
    in_flight: int


@dataclass(frozen=True)
class SharedLayers:
    """Layers that all GPUs share alike.

    Attributes:
        layers: In order of the model.
        places: Index of the chain's layer before which each comes; the chain's length for one at the end.
        strategy: How all GPUs share each.
        costs: Cost of one micro-batch of each, on each GPU.
    """

    layers: tuple[Layer, ...]
    places: tuple[int, ...]
    strategy: LayerStrategy
    costs: tuple[Cost, ...]

    @property
    def held_mib(self) -> float:
        """Memory that they take of each GPU, with two micro-batches at once."""
        lasting = sum(cost.static_bytes + 2 * cost.kept_bytes for cost in self.costs)
        return (lasting + max(max(cost.forward_bytes, cost.backward_bytes) for cost in self.costs)) / 2**20

    def iteration_ms(self, num_micro_batches: int) -> float:
        """Return the time of the shared layers in an iteration, exchange and update of weights included."""
        passes_ms = sum(cost.forward.time_ms + cost.backward.time_ms for cost in self.costs)
        return num_micro_batches * passes_ms + sum(cost.update_ms for cost in self.costs)


class RatedPlan(NamedTuple):
    """A plan with the iteration and stage times and memory that the search's formula gives.

    Attributes:
        plan: The plan; of an M- or NN-shape only the layers between embeddings and output layer.
        time_ms: Time of an iteration, with the shared layers.
        stages: Estimates of the stages, without them.
        shared: The layers that are on all GPUs, beside the chain; None for none.
    """

    plan: Plan
    time_ms: float
    stages: tuple[StageEstimate, ...]
    shared: SharedLayers | None = None

    @property
    def samples_per_s(self) -> float:
        """Throughput."""
        return self.plan.global_batch_size / self.time_ms * 1e3


class PlanStatus(StrEnum):
    """Knowledge of the best plan of a search.

    OPTIMAL: the first plan meets the bound. FEASIBLE: there is a plan, and a bound that it does not meet.
    INFEASIBLE: no plan fits. UNKNOWN: the search ended before it found a plan, or it does not try all
    plans.
    """

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class PlanSearchResult:
    """The best plans of a search, with the reasons of failed trials and a lower bound.

    Attributes:
        plans: Plans by increasing time; empty where none fits.
        trials: Why numbers of stages, GPUs of each and micro-batches have no plan, in the order in which they
            were looked at; empty where there is one.
        bound_ms: Lower bound of every plan's iteration; infinite where it is proved that none fits.
        num_solved: Stage problems that were solved.
        interrupted: There was an interrupt from the keyboard; the plans are the best until then.
        out_of_time: The same after the time limit.
        num_left: Numbers that were not solved then.
    """

    plans: tuple[RatedPlan, ...]
    trials: Mapping[tuple[int, ...], str]
    bound_ms: float
    num_solved: int
    interrupted: bool = False
    out_of_time: bool = False
    num_left: int = 0

    @property
    def status(self) -> PlanStatus:
        """Status of the first plan."""
        if not self.plans:
            return PlanStatus.INFEASIBLE if math.isinf(self.bound_ms) else PlanStatus.UNKNOWN
        is_met = self.plans[0].time_ms <= self.bound_ms * (1 + ROUNDING)
        return PlanStatus.OPTIMAL if is_met else PlanStatus.FEASIBLE

    @property
    def gap_percent(self) -> float:
        """Gap in percent between the first plan and the bound; 0 for a proved optimum, 100 without a plan."""
        return 100 * (1 - self.bound_ms / self.plans[0].time_ms) if self.plans else 100.0
