"""The plans of a model on a cluster, in several shapes, best first.

The module knows what a plan's figures are. It makes no plan and ranks none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from placements import Placement
from placements.cluster import Cluster
from placements.models.chain import ModelShape
from placements.planners.hybrid.placing.shared_layers import SharedLayers
from placements.planners.hybrid.placing.trunk_search import TrunkPlan
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.plan_file import plan_to_dict
from placements.planners.hybrid.plan_options import PlanOptions, PlanSearchResult, RatedPlan, Trial
from placements.planners.hybrid.stage_tables import LayerCosts
from placements.planners.parallel_plan import PlanError
from schedsearch.core.answer import Status
from schedsearch.metrics import in_flight
from schedsearch.planning.layout_plans import LayoutPlan, LayoutPlans
from schedsearch.results import FileResult
from schedsearch.schedule import Schedule

HybridPlan = RatedPlan | TrunkPlan
"""A plan as its search gives it: all layers in a chain, or those between the vocabulary on all GPUs."""

FoundPlan = HybridPlan | LayoutPlan
"""The same, or a layout of a training framework."""


def chain_of(found: FoundPlan) -> RatedPlan:
    """Return a plan's chain of stages in order of their devices."""
    return found if isinstance(found, RatedPlan) else found.rated


def plan_name(shape: str, found: FoundPlan) -> str:
    """Return a plan's shape, if it is not a chain, the degrees of most layers, and its micro-batches.

    Degrees of 1 and ZeRO-1 are left out; a plan is mixed where not all layers are shared alike.
    """
    plan = chain_of(found).plan
    how = plan.common
    degrees = {
        "TP": how.matrix_parallel,
        "PP": plan.num_stages,
        "VP": found.layout.degrees.chunks if isinstance(found, LayoutPlan) else 1,
        "CP": how.token_parallel,
        "EP": how.expert_parallel,
        "DP": how.data_parallel,
    }
    words = [] if shape == "v_shape" or degrees["VP"] > 1 else [shape]
    words += [f"{name}{degree}" for name, degree in degrees.items() if degree > 1]
    words += ["whole"] if how.whole_experts else []
    words += [f"ZeRO-{how.zero}"] if how.zero != 1 and how.data_parallel > 1 else []
    words += [] if isinstance(found, LayoutPlan) or plan.is_uniform else ["mixed"]
    return f"{' '.join(words)}, {plan.num_micro_batches}x{plan.micro_batch_size}".removeprefix(", ")


@dataclass(frozen=True)
class RankedPlan:
    """The searched schedule of a plan.

    Attributes:
        status: OPTIMAL where no schedule of the placement is shorter, FEASIBLE where one may be; INFEASIBLE
            or UNKNOWN where there is none.
        iteration_ms: Makespan of the schedule, updates included; None where there is none.
        iteration_bound_ms: No schedule of this placement is shorter; None likewise.
        one_f_one_b_ms: The same of 1F1B on this placement; None where it is not defined or does not fit.
        peaks_mib: The most that a GPU of each device holds with the schedule; None likewise.
        energy_j: Energy at the deadline that was asked for; None where none was, or it cannot be kept.
        search_seconds: Wall-clock time.
        note: Why there is no schedule, or what was cut.
        schedule: The schedule itself.
    """

    status: Status
    iteration_ms: float | None = None
    iteration_bound_ms: float | None = None
    one_f_one_b_ms: float | None = None
    peaks_mib: tuple[float, ...] | None = None
    energy_j: float | None = None
    search_seconds: float = 0.0
    note: str = ""
    schedule: Schedule | None = field(default=None, compare=False, repr=False)

    @property
    def proved(self) -> str:
        """The proof of the schedule, or why there is none, in words."""
        words = {Status.OPTIMAL: "makespan", Status.FEASIBLE: "no"}
        return words.get(self.status, str(self.status).lower())


@dataclass(frozen=True)
class ProposedPlan:
    """A plan in one shape.

    Attributes:
        found: The plan that the shape is made of.
        shape: Such as ``v_shape``.
        placement: Its blocks, with the memory of each device.
        formula_ms: What its planner took the iteration to be; None where it has no formula.
        ranked: What its search found; None where plans are ranked by the formula alone.
        is_equal: It is as fast as the plan before it, as far as costs are exact.
        chunks: Stage and layers of each chunk, in order of the model; empty where a stage has one.
    """

    found: FoundPlan
    shape: str
    placement: Placement
    formula_ms: float | None = None
    ranked: RankedPlan | None = None
    is_equal: bool = False
    chunks: tuple[tuple[int, range], ...] = ()

    @property
    def name(self) -> str:
        """Its shape and numbers."""
        return plan_name(self.shape, self.found)

    @property
    def rated(self) -> RatedPlan:
        """Its chain of stages, with what they hold; see `plan`."""
        return chain_of(self.found)

    @property
    def shared(self) -> SharedLayers | None:
        """The layers that are on all GPUs, beside the chain; None for none."""
        return self.found.shared if isinstance(self.found, TrunkPlan) else None

    @property
    def plan(self) -> Plan:
        """The plan itself; of an M- or NN-shape only the layers between embeddings and output layer."""
        return self.rated.plan

    @property
    def num_stages(self) -> int:
        """The number of stages of the chain."""
        return self.plan.num_stages

    @property
    def num_gpus(self) -> int:
        """GPUs that are used."""
        return self.plan.num_gpus

    @property
    def formula_samples_per_s(self) -> float | None:
        """Throughput by the formula; None where there is none for the shape."""
        return self._samples_per_s(self.formula_ms)

    @property
    def samples_per_s(self) -> float | None:
        """Throughput of the searched schedule, or by the formula where none was searched."""
        return self._samples_per_s(self.formula_ms if self.ranked is None else self.ranked.iteration_ms)

    def _samples_per_s(self, time_ms: float | None) -> float | None:
        return None if time_ms is None else self.plan.global_batch_size / time_ms * 1e3

    @property
    def is_uniform(self) -> bool:
        """All layers of its chain are shared alike, but for those of a layout that are computed again."""
        return isinstance(self.found, LayoutPlan) or self.plan.is_uniform

    @property
    def complexity(self) -> tuple[int, ...]:
        """What a reader has to set up, of which less is simpler.

        Layers that are shared in several ways come first, then chunks of a device, then how many of tensor,
        pipeline, context and expert parallelism there are.
        """
        how, chunks = self.plan.common, 2 if self.shape != "v_shape" else 1
        if isinstance(self.found, LayoutPlan):
            chunks = self.found.layout.degrees.chunks
        degrees = how.matrix_parallel, self.num_stages, how.token_parallel, how.expert_parallel
        return not self.is_uniform, chunks, sum(degree > 1 for degree in degrees)

    @property
    def peaks_mib(self) -> tuple[float, ...]:
        """The most memory of a GPU of each stage: with its schedule, or by the planner where it has none."""
        if self.ranked is not None and self.ranked.peaks_mib is not None:
            return self.ranked.peaks_mib
        held_mib = 0.0 if self.shared is None else self.shared.held_mib
        return tuple(stage.peak_mib + held_mib for stage in self.rated.stages)

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Micro-batches that each stage holds at most: with its schedule, or by the planner."""
        if self.ranked is not None and self.ranked.schedule is not None:
            return tuple(in_flight(self.ranked.schedule).tolist())
        return tuple(stage.in_flight for stage in self.rated.stages)

    def tokens_per_s_per_gpu(self, model: ModelShape) -> float | None:
        """Return the throughput in tokens of each GPU that is used; None of a model without tokens."""
        rate = self.samples_per_s
        return rate * model.num_tokens / self.num_gpus if rate and model.num_tokens else None

    def mfu_percent(self, model: ModelShape) -> float | None:
        """Return the model FLOPs utilisation in percent; None where operations are not known.

        That is what the model's products need, three times those of a forward and nothing that is computed
        again (Chowdhery et al., 2022, App. B), over the peak of the GPUs that are used, in the model's
        precision, dense, as in `placements.gpus`.

        Args:
            model: The whole one.
        """
        gpus = [kind for stage in self.plan.stage_gpus for kind in stage.items()]
        peak_tflops = sum(number * model.precision.peak_tflops(gpu) for gpu, number in gpus)
        rate = self.samples_per_s
        return (
            300 * model.forward_flops * rate / (peak_tflops * 1e12) if rate and model.forward_flops else None
        )

    def capacities_gib(self, options: PlanOptions) -> tuple[float, ...]:
        """Return the GiB that each GPU of a stage has for states and activations, by stage."""
        return capacities_of(self.rated, options)


@dataclass(frozen=True)
class Plans(FileResult):
    """The plans of a model on a cluster, best first.

    Attributes:
        model: What is planned.
        cluster: For which GPUs.
        options: What was allowed.
        costs: What layers cost.
        ranked_by: One of `schedsearch.planning.planner.RANKS`.
        proposed: Plans in the order of the ranking.
        searches: What the planner tried with the layers in a chain, for each batch size.
        left_out: Shapes that were not made, and why, a line each.
        interrupted: Whether it was interrupted from the keyboard; then this is what there was until then.
        layouts: The layouts that were rated, for each batch size, and the user's own.
    """

    model: ModelShape
    cluster: Cluster
    options: PlanOptions
    costs: LayerCosts = field(repr=False)
    ranked_by: str
    proposed: tuple[ProposedPlan, ...]
    searches: dict[int, PlanSearchResult] = field(repr=False)
    left_out: tuple[str, ...] = ()
    interrupted: bool = False
    layouts: dict[int, LayoutPlans] = field(default_factory=dict, repr=False)

    @property
    def best(self) -> ProposedPlan:
        """The first.

        Raises:
            PlanError: There is none: nothing fits.
        """
        if not self.proposed:
            raise PlanError(f"{self.model.name}: no plan fits; see the trials")
        return self.proposed[0]

    @property
    def trials(self) -> tuple[tuple[int, Trial], ...]:
        """All numbers that were tried, with the batch size."""
        return tuple((batch, trial) for batch, found in self.searches.items() for trial in found.trials)

    def rows(self) -> list[dict[str, Any]]:
        """Return the figures of each plan by `PLAN_COLUMNS`; None where one does not apply."""
        return [_row(each, self.model) for each in self.proposed]

    def to_dict(self) -> dict[str, Any]:
        """Return the plans and their figures as plain data; each plan in its file form.

        Raises:
            PlanError: The cluster has a GPU that a file cannot name.
        """
        return {
            "ranked_by": self.ranked_by,
            "plans": [
                row | {"plan": plan_to_dict(each.plan)}
                for row, each in zip(self.rows(), self.proposed, strict=True)
            ],
            "left_out": list(self.left_out),
        }


PLAN_COLUMNS = (
    *("name", "equal", "shape", "stages", "gpus_per_stage", "micro_batches", "batch", "formula_ms"),
    *("iteration_ms", "iteration_bound_ms", "one_f_one_b_ms", "proved", "samples_per_s"),
    *("tokens_per_s_per_gpu", "mfu_percent", "peak_memory_mib", "energy_j", "search_seconds", "note"),
)
"""Columns of the table of plans, in order."""


def capacities_of(rated: RatedPlan, options: PlanOptions) -> tuple[float, ...]:
    """Return the GiB that each GPU of a stage has for states and activations, by stage."""
    groups = [rated.plan.group(stage) for stage in range(rated.plan.num_stages)]
    given_gib = [group.memory_gib if options.memory_gib is None else options.memory_gib for group in groups]
    return tuple(each - options.reserve_gib for each in given_gib)


def _row(proposed: ProposedPlan, model: ModelShape) -> dict[str, Any]:
    ranked, plan = proposed.ranked, proposed.plan
    return {
        "name": proposed.name,
        "equal": proposed.is_equal,
        "shape": proposed.shape,
        "stages": proposed.num_stages,
        "gpus_per_stage": proposed.num_gpus // proposed.num_stages,
        "micro_batches": plan.num_micro_batches,
        "batch": plan.global_batch_size,
        "formula_ms": proposed.formula_ms,
        "iteration_ms": ranked and ranked.iteration_ms,
        "iteration_bound_ms": ranked and ranked.iteration_bound_ms,
        "one_f_one_b_ms": ranked and ranked.one_f_one_b_ms,
        "proved": ranked.proved if ranked else "",
        "samples_per_s": proposed.samples_per_s,
        "tokens_per_s_per_gpu": proposed.tokens_per_s_per_gpu(model),
        "mfu_percent": proposed.mfu_percent(model),
        "peak_memory_mib": max(proposed.peaks_mib),
        "energy_j": ranked and ranked.energy_j,
        "search_seconds": ranked and ranked.search_seconds,
        "note": ranked.note if ranked else "",
    }
