"""A plan as another system runs it, with all layers shared alike, and its time and memory by the same costs.

No system has all features of a plan. The plan that a system runs instead must fit the memory, and its
differences from the given plan are listed. The module does not know any system.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from placements.block import PlacementError
from placements.models.parallel import LayerStrategy
from placements.planners.hybrid.plan import Plan, PlanError, alike
from placements.planners.hybrid.plan_options import RatedPlan, StageEstimate
from placements.planners.hybrid.stage_tables import LayerCosts, strategy_costs, transitions_ms
from placements.planners.stage_solver import StageProblem, weigh
from placements.trainers.job import TrainerJob, most_recomputed
from placements.trainers.megatron_layout import group_size


class PlanExport(NamedTuple):
    """A plan in another system's terms.

    Attributes:
        text: Text of its file.
        run: Plan as the system runs it, with its time and memory.
        differs: Differences from the plan, and arguments to give besides, one line each.
        job: The system's job; None for a system with a form of its own.
    """

    text: str
    run: RatedPlan
    differs: tuple[str, ...]
    job: TrainerJob | None = None


class Planned(NamedTuple):
    """A plan, with a function to rate it when its layers are shared otherwise.

    Attributes:
        rated: The plan, with its time and memory.
        capacities_gib: Memory of each GPU of a stage for states and activations, by stage.
        rate: Time and memory of another plan with the same stages. Raises `PlacementError`
            where a layer cannot be shared so.
        chunks: Layers of each virtual stage; None for those of the stages.
        remedy: Remedy for the user where a system runs the plan otherwise.
        job_fields: Fields of `TrainerJob` that a plan lacks.
    """

    rated: RatedPlan
    capacities_gib: Sequence[float]
    rate: Callable[[Plan], RatedPlan]
    chunks: Sequence[range] | None = None
    remedy: str = ""
    job_fields: Mapping[str, Any] = {}

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.rated.plan

    @property
    def _parts(self) -> Sequence[range]:
        return self.chunks or [stage.layers for stage in self.plan.stages]

    def _shared(self, strategy: LayerStrategy, num_recomputed: int) -> Plan:
        """Return the plan with one strategy everywhere, and `num_recomputed` layers per chunk recomputed."""
        layers = self.plan.model.layers
        chosen = [alike(strategy, layer) for layer in layers]
        for part in self._parts:
            for i in self.plan.inner_layers(part)[:num_recomputed]:
                chosen[i] = replace(chosen[i], recompute="full")
        return with_strategies(self.plan, chosen)

    def _is_planned(self, strategy: LayerStrategy, in_part: bool) -> bool:
        """Return whether all layers are shared so, but for the first of each chunk, which are recomputed."""
        kinds = {self.plan.strategies[i].recompute for i in self.plan.inner_layers()}
        most = most_recomputed(self.plan, self._parts)
        plain = replace(strategy, recompute="none") if most else strategy
        return (in_part or len(kinds) == 1) and self._shared(plain, most) == self.plan

    def fullest(self, run: RatedPlan) -> tuple[bool, str]:
        """Return whether every stage fits, and a text on the stage with the least room left."""
        needs = [stage.peak_mib / 1024 for stage in run.stages]
        stage = min(range(len(needs)), key=lambda i: self.capacities_gib[i] - needs[i])
        gib = self.capacities_gib[stage]
        words = f"stage {stage} needs {needs[stage]:.1f} GiB of {gib:.1f}"
        return needs[stage] <= gib, f"{words}; {self.remedy}" if self.remedy else words

    def best_of(self, strategies: Iterable[LayerStrategy], system: str, in_part: bool) -> RatedPlan:
        """Return the plan itself if all its layers have one of the strategies, else the fastest of these.

        As few layers are recomputed as it takes, the first ones of each chunk.

        Args:
            strategies: The ways, each with the recomputation that it always has.
            system: System that runs them.
            in_part: Some layers of a chunk can be recomputed, and not only all or none.

        Raises:
            PlanError: None fits, or no layer can be shared so.
        """
        ways = list(strategies)
        if self.fullest(self.rated)[0] and any(self._is_planned(strategy, in_part) for strategy in ways):
            return self.rated
        reasons, fitting = list[str](), list[RatedPlan]()
        for strategy in ways:
            try:
                run = self._least_recomputed(strategy, in_part)
            except PlacementError as error:
                reasons.append(str(error))
                continue
            fits, words = self.fullest(run)
            fitting += [run] if fits else []
            reasons.append(f"memory: as {system} shares the layers, {words}")
        if not fitting:
            raise PlanError(reasons[0])
        return min(fitting, key=lambda run: run.time_ms)

    def _least_recomputed(self, strategy: LayerStrategy, in_part: bool) -> RatedPlan:
        """Return the run of a strategy with the fewest recomputed layers that fit; with all if none fits."""
        run = self.rate(self._shared(strategy, 0))
        if self.fullest(run)[0] or strategy.recompute == "full":
            return run
        most = max(map(len, self._parts))
        counts = range(1 if in_part else most, most)
        fits = bisect_left(counts, True, key=lambda n: self.fullest(self.rate(self._shared(strategy, n)))[0])
        return self.rate(self._shared(strategy, [*counts, most][fits]))

    def differences(self, run: RatedPlan) -> list[str]:
        """Return the differences of a run from the plan, and their cost, one line each."""
        before, after = self.plan, run.plan
        lines, used = [], before.num_gpus
        if changed := sum(a != b for a, b in zip(before.strategies, after.strategies, strict=True)):
            lines.append(
                f"{changed} of {len(before.strategies)} layers are shared otherwise than planned: an "
                f"iteration takes {run.time_ms:,.0f} ms and not {self.rated.time_ms:,.0f}; "
                f"{self.fullest(run)[1]}"
            )
        if used < before.cluster.num_gpus:
            lines.append(
                f"{used} of {before.cluster.num_gpus} GPUs are used; start a process for each of these"
            )
        if len(self.chunks or ()) > before.num_stages:
            group = group_size(before.num_stages, before.num_micro_batches)
            lines.append(
                f"interleaved 1F1B in groups of {group} micro-batches takes {run.time_ms:,.0f} ms and fits"
            )
        return lines


def with_strategies(plan: Plan, strategies: Sequence[LayerStrategy]) -> Plan:
    """Return a plan whose layers are shared otherwise."""
    stages = (
        replace(stage, strategies=tuple(strategies[stage.layers.start : stage.layers.stop]))
        for stage in plan.stages
    )
    return replace(plan, stages=tuple(stages))


def planned_by(rated: RatedPlan, costs: LayerCosts, capacities_gib: Sequence[float], **other: Any) -> Planned:
    """Return a plan of stages whose layers cost so much, timed by 1F1B; see `Planned`."""
    return Planned(
        rated,
        capacities_gib,
        lambda plan: rate(plan, costs),
        remedy="plan with planner.uniform=true, whose layers are all shared alike",
        **other,
    )


def rate(plan: Plan, costs: LayerCosts) -> RatedPlan:
    """Return a plan with the time and memory that a search would give this plan, under 1F1B.

    Raises:
        PlacementError: A layer cannot be shared so.
    """
    samples, m, kinds = plan.micro_batch_size, plan.num_micro_batches, set(plan.layers)
    estimates, stages_ms = [], []
    for number, stage in enumerate(plan.stages):
        group, layouts = plan.group(number), dict[object, LayerStrategy]()
        layers = tuple(
            strategy_costs({how: costs.cost(plan.layers[i], how, samples, m, group)}, m, layouts)
            for i, how in zip(stage.layers, stage.strategies, strict=True)
        )
        between = transitions_ms(costs, kinds, layouts.values(), samples, group)
        in_flight = min(plan.num_stages - number, m)
        solution = weigh(StageProblem(layers, between, in_flight, 0.0), (0,) * len(layers))
        stages_ms.append(solution.cost)
        estimates.append(StageEstimate(solution.time_ms, solution.sync_ms, solution.peak_mib, in_flight))
    transfers_ms = sum(
        2 * costs.transfer_ms(plan.layers[before.layers[-1]], samples, plan.group(i), plan.group(i + 1))
        for i, (before, _) in enumerate(pairwise(plan.stages))
    )
    return RatedPlan(plan, (m - 1) * max(stages_ms) + sum(stages_ms) + transfers_ms, tuple(estimates))
