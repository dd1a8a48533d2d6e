"""The plans of a model on a cluster, in several shapes, best first.

The module knows what a plan's figures are. It makes no plan and ranks none.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from placements import Placement
from placements.cluster import Cluster
from placements.hardware import Gpu
from placements.models.chain import ModelShape
from placements.models.training_figures import IterationWork, TrainingFigures
from placements.planners.hybrid.plan import Plan, PlanError
from placements.planners.hybrid.plan_file import plan_to_dict
from placements.planners.hybrid.plan_options import PlanOptions, PlanSearchResult, RatedPlan
from placements.planners.hybrid.search.layout_search import LayoutEstimate
from placements.planners.hybrid.stage_tables import LayerCosts
from schedsearch.core.answer import Status
from schedsearch.metrics import modelled_energy_mj, peak_memory
from schedsearch.planning.uniform_run import UniformRun, degrees_in_words
from schedsearch.results import FileResult
from schedsearch.schedule import Schedule


def capacities_gib(plan: Plan, options: PlanOptions) -> tuple[float, ...]:
    """Return by stage the GiB of each GPU for states and activations."""
    groups = [plan.group(stage) for stage in range(plan.num_stages)]
    given_gib = [group.memory_gib if options.memory_gib is None else options.memory_gib for group in groups]
    return tuple(gib - options.reserve_gib for gib in given_gib)


def plan_name(shape: str, plan: Plan, run: UniformRun | None = None) -> str:
    """Return a plan's name: its shape (unless a chain), the degrees of most layers, and its micro-batches.

    Degrees of 1 and ZeRO-1 are left out; a plan is mixed where not all layers are shared alike,
    and a layout searched where its order is not the one made by hand.
    """
    how, chunks = plan.common, 1 if run is None else run.layout.degrees.chunks
    degrees = how.matrix_parallel, plan.num_stages, chunks, how.token_parallel, how.expert_parallel
    words = [] if shape == "v_shape" or chunks > 1 else [shape]
    words += degrees_in_words(*degrees, how.data_parallel)
    words += ["whole"] if how.whole_experts else []
    words += [f"ZeRO-{how.zero}"] if how.zero != 1 and how.data_parallel > 1 else []
    words += [] if run is not None or plan.is_uniform else ["mixed"]
    words += ["uneven"] if run is not None and run.layout.chunk_layers else []
    words += ["searched"] if run is not None and run.order is not None else []
    return f"{' '.join(words)}, {plan.num_micro_batches}x{plan.micro_batch_size}".removeprefix(", ")


@dataclass(frozen=True)
class RankedPlan:
    """A plan in one shape, with its schedule, iteration time (ms) and bound.

    Attributes:
        shape: Such as ``v_shape``.
        rated: Its chain of stages in order of their devices, by the formula of its planner.
        placement: Its blocks, with the memory of each device.
        run: A layout of a training framework as it is run; None for other plans.
        status: OPTIMAL where no schedule of the placement is shorter, FEASIBLE where one may be; INFEASIBLE
            or UNKNOWN where there is none; None where its time is that of its formula.
        schedule: The schedule; None where there is none.
        bound_ms: No order of this placement is shorter; None where nothing is known.
        note: Why there is no schedule.
        is_equal: Whether it is as fast as the plan before it, as far as costs are exact.
    """

    shape: str
    rated: RatedPlan
    placement: Placement
    run: UniformRun | None = None
    status: Status | None = None
    schedule: Schedule | None = field(default=None, compare=False, repr=False)
    bound_ms: float | None = None
    note: str = ""
    is_equal: bool = False

    @property
    def plan(self) -> Plan:
        """The plan itself; see `rated`."""
        return self.rated.plan

    @property
    def chunks(self) -> list[tuple[int, range]]:
        """Stage and layers of each chunk, in order of the model; empty where a stage has one."""
        return [] if self.run is None else list(zip(self.run.devices, self.run.chunks, strict=True))

    @property
    def name(self) -> str:
        """Its shape and numbers; see `plan_name`."""
        return plan_name(self.shape, self.plan, self.run)

    @property
    def complexity(self) -> tuple[int, ...]:
        """Complexity of a plan's set-up, as a sort key; less is simpler.

        The key is whether layers have different strategies, then whether a layout has a searched order, then
        chunks per device, then how many of tensor, pipeline, context and expert parallelism the plan has.
        """
        how, chunks = self.plan.common, 1 if self.shape == "v_shape" else 2
        chunks = chunks if self.run is None else self.run.layout.degrees.chunks
        degrees = how.matrix_parallel, self.plan.num_stages, how.token_parallel, how.expert_parallel
        is_mixed = self.run is None and not self.plan.is_uniform
        is_searched = self.run is not None and self.run.order is not None
        return is_mixed, is_searched, chunks, sum(degree > 1 for degree in degrees)

    @property
    def iteration_ms(self) -> float | None:
        """Time of the schedule with optimizer updates, in ms; None without a schedule."""
        if self.schedule is None:
            return None
        return self.placement.ms(self.schedule.makespan) if self.run is None else self.run.iteration_ms

    def with_bound(self, bound_ms: float) -> RankedPlan:
        """Return the plan with a lower bound; OPTIMAL where its schedule takes no tick more."""
        assert self.iteration_ms is not None, "it has a schedule"
        bound_ms = min(bound_ms, self.iteration_ms)
        is_proved = round((self.iteration_ms - bound_ms) / self.placement.tick_ms) == 0
        return replace(self, bound_ms=bound_ms, status=Status.OPTIMAL if is_proved else Status.FEASIBLE)

    @property
    def samples_per_s(self) -> float | None:
        """Throughput of the schedule, or by the formula where none was made."""
        time_ms = self.rated.time_ms if self.status is None else self.iteration_ms
        return None if time_ms is None else self.plan.global_batch_size / time_ms * 1e3

    @property
    def most_samples_per_s(self) -> float:
        """Throughput that no order of its blocks exceeds; infinite where no bound is known."""
        return self.plan.global_batch_size / self.bound_ms * 1e3 if self.bound_ms else math.inf

    @property
    def proved(self) -> str:
        """The proof of the schedule, or the reason why it has none, in words."""
        words = {None: "formula", Status.OPTIMAL: "makespan", Status.FEASIBLE: "no"}
        return words.get(self.status, str(self.status).lower())

    @cached_property
    def peaks_mib(self) -> tuple[float, ...]:
        """Peak memory of a GPU of each stage in MiB: by the schedule, or without one by the planner."""
        if self.schedule is not None:
            return tuple(self.placement.mib(peak) or 0.0 for peak in peak_memory(self.schedule).tolist())
        held_mib = 0.0 if self.rated.shared is None else self.rated.shared.held_mib
        return tuple(stage.peak_mib + held_mib for stage in self.rated.stages)

    def row(self, model: ModelShape) -> dict[str, Any]:
        """Return its figures by `PLAN_COLUMNS`; None where one does not apply."""
        plan = self.plan
        figures = (
            *(self.name, self.is_equal, self.shape, plan.num_stages, plan.num_gpus // plan.num_stages),
            *(plan.num_micro_batches, plan.global_batch_size, self.rated.time_ms, self.iteration_ms),
            *(self.bound_ms, self.proved, self.samples_per_s, *self.training_figures(model)),
            *(max(self.peaks_mib), self.note),
        )
        return dict(zip(PLAN_COLUMNS, figures, strict=True))

    def training_figures(self, model: ModelShape) -> TrainingFigures:
        """Return the training figures of the whole model; energies are modelled, and need a schedule."""
        if (rate := self.samples_per_s) is None:
            return TrainingFigures()
        samples, gpus = self.plan.global_batch_size, sum(self.plan.stage_gpus, Counter[Gpu]())
        return IterationWork.of(model, gpus, samples).figures(1e3 * samples / rate, self._energy_mj)

    @cached_property
    def _energy_mj(self) -> float | None:
        if self.schedule is None or self.iteration_ms is None:
            return None
        return modelled_energy_mj(self.schedule, self.plan.stage_gpus, self.iteration_ms)


PLAN_COLUMNS = (
    *("name", "equal", "shape", "stages", "gpus_per_stage", "micro_batches", "batch", "formula_ms"),
    *("iteration_ms", "iteration_bound_ms", "proved", "samples_per_s"),
    *(*TrainingFigures._fields, "peak_memory_mib", "note"),
)
"""Columns of the table of plans, in order."""


@dataclass(frozen=True)
class LayoutPlans:
    """The layouts of a model on a cluster.

    Attributes:
        limit_gib: Memory of a GPU that a layout may use.
        plans: The best, by increasing time of their schedules; empty where nothing fits.
        estimates: Estimates of the layouts that may be among the best; fitting ones first, then by time.
        bound_ms: No layout that fits by the formula is shorter than this, in any division and order.
        num_layouts: Number of all layouts.
        num_left: Number of layouts not rated, because of a Ctrl-C or the time limit.
        interrupted: Whether there was a Ctrl-C.
    """

    limit_gib: float
    plans: tuple[RankedPlan, ...]
    estimates: tuple[LayoutEstimate, ...]
    bound_ms: float
    num_layouts: int = 0
    num_left: int = 0
    interrupted: bool = False


@dataclass(frozen=True)
class Plans(FileResult):
    """The plans of a model on a cluster, best first.

    Attributes:
        model: The planned model.
        cluster: The GPUs.
        options: The options of the planner.
        costs: Costs of the layers.
        proposed: Plans in the order of the ranking.
        searches: Results of the search of strategies with the layers in a chain, for each batch size.
        layouts: The layouts that were rated, for each batch size.
        left_out: Plans that were not made, with the reason, a line each.
        interrupted: Whether Ctrl-C ended the planning; then these are the plans made until then.
    """

    model: ModelShape
    cluster: Cluster
    options: PlanOptions
    costs: LayerCosts = field(repr=False)
    proposed: tuple[RankedPlan, ...]
    searches: dict[int, PlanSearchResult] = field(repr=False)
    layouts: dict[int, LayoutPlans] = field(repr=False)
    left_out: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def best(self) -> RankedPlan:
        """The best plan.

        Raises:
            PlanError: There is none: nothing fits.
        """
        if not self.proposed:
            raise PlanError(f"{self.model.name}: no plan was found before the interruption")
        return self.proposed[0]

    def rows(self) -> list[dict[str, Any]]:
        """Return the figures of each plan by `PLAN_COLUMNS`; None where one does not apply."""
        return [plan.row(self.model) for plan in self.proposed]

    def to_dict(self) -> dict[str, Any]:
        """Return the plans and their figures as plain data; each plan in its file form.

        Raises:
            PlanError: The cluster has a GPU that a file cannot name.
        """
        plans = [plan.row(self.model) | {"plan": plan_to_dict(plan.plan)} for plan in self.proposed]
        return {"plans": plans, "left_out": list(self.left_out)}
