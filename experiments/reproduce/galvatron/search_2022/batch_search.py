"""The best batch of a model under a memory limit, and its plan (Galvatron-BMW, Sec. IV-A1, Alg. 1).

Nothing is recomputed. Batches grow in steps until one does not fit; the first is estimated from plans with
one strategy for all layers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from experiments.reproduce.galvatron.search_2022.constants import Constants, ConstantsError
from experiments.reproduce.galvatron.search_2022.micro_batches import written_micro_batches
from experiments.reproduce.galvatron.search_2022.pipelines import StagedModel, make_pipeline
from experiments.reproduce.galvatron.search_2022.strategies import METHODS, GalvatronStrategy, of_method

_BATCHES_BELOW = 1024
_DIVIDED_BELOW = {"t5": 64, "swin": 256}
"""Where the original has no stages for layers of several types any more. Defect: there it ends with a
KeyError; here no larger batch is tried."""

_SLACK = 1e-9
"""Relative; what is nearer to the best is solved, not left out by its bound."""

_MOST_GIB = 1024


@dataclass(frozen=True)
class FoundPlan:
    """The plan with the highest throughput.

    Attributes:
        batch: Samples of an iteration.
        samples_per_s: By the cost model.
        stage_layers: Number of layers of each stage.
        strategies: Strategies of each layer.
        num_micro_batches: As the plan says it, which is not always what the cost model counts with.
    """

    batch: int
    samples_per_s: float
    stage_layers: tuple[int, ...]
    strategies: tuple[GalvatronStrategy, ...]
    num_micro_batches: int


def best_plan(
    constants: Constants, layer_counts: tuple[int, ...], memory_gib: float, method: str
) -> FoundPlan | None:
    """Return the plan that the original's search ends with; None where it finds none in the memory.

    Args:
        constants: Constants of the model and its GPUs.
        layer_counts: Layers of each type of the constants.
        memory_gib: Memory of a GPU.
        method: One of `METHODS`.

    Raises:
        ConstantsError: The layers are not those of the constants, or the memory or method is wrong.
    """
    if method not in METHODS:
        raise ConstantsError(f"method: {method!r} is not known; use one of {', '.join(METHODS)}")
    if not 0 < memory_gib <= _MOST_GIB:
        raise ConstantsError(f"memory_gib: {memory_gib!r} is not a number above 0 to {_MOST_GIB}; give one")
    check_layers(constants, layer_counts)
    return _Search(constants, layer_counts, int(memory_gib * 1024), method).run()


def check_layers(constants: Constants, layer_counts: tuple[int, ...]) -> None:
    """Reject a model's layers that are not those of the constants.

    Raises:
        ConstantsError: They are not, or the search does not know them.
    """
    if len(layer_counts) != len(constants.layer_types) or min(layer_counts) < 1:
        raise ConstantsError(
            f"{constants.name}: has {len(constants.layer_types)} types of layers, but the model has "
            f"{layer_counts} of them; give a number above 0 for each"
        )
    if constants.num_gpus == 16 and not constants.has_equal_layers:
        raise ConstantsError(
            f"{constants.name}: layers of several types are reproduced on 8 GPUs only; give an entry for 8"
        )


@dataclass(frozen=True)
class _Search:
    """One cell of a table."""

    constants: Constants
    layer_counts: tuple[int, ...]
    memory_mib: int
    method: str

    @cached_property
    def groups(self) -> dict[int, tuple[GalvatronStrategy, ...]]:
        """The strategies of the method by their number of stages."""
        strategies = sorted(of_method(self.constants.strategies, self.method), key=_num_stages)
        return {number: tuple(each) for number, each in itertools.groupby(strategies, _num_stages)}

    def run(self) -> FoundPlan | None:
        """Solve the pipelines of all batches, those first that may be the fastest."""
        bounded = [
            (batch / pipeline.min_time_s, batch, pipeline)
            for batch in self.batches()
            for pipeline in self.pipelines(batch)
        ]
        best: FoundPlan | None = None
        for most_per_s, batch, pipeline in sorted(bounded, key=lambda each: -each[0]):
            if best is not None and most_per_s * (1 + _SLACK) < best.samples_per_s:
                break
            time_s, strategies = pipeline.solve()
            found = (batch / time_s, -batch, -len(pipeline.stage_layers))
            if best is None or found > (best.samples_per_s, -best.batch, -len(best.stage_layers)):
                best = self.plan(batch, time_s, pipeline.stage_layers, strategies)
        return best

    def plan(
        self,
        batch: int,
        time_s: float,
        stage_layers: tuple[int, ...],
        strategies: tuple[GalvatronStrategy, ...],
    ) -> FoundPlan:
        """Return the plan as it is written."""
        constants, number = self.constants, 1
        if len(stage_layers) > 1:
            number = max(
                written_micro_batches(constants.family, constants.num_gpus, each, batch // each.data_parallel)
                for each in strategies
            )
        return FoundPlan(batch, batch / time_s, stage_layers, strategies, number)

    def batches(self) -> Iterator[int]:
        """Yield the batches that are tried: from the estimate until one fits with no number of stages."""
        for batch in range(self.first_batch(), self.batches_below, self.step):
            if not any(self.pipelines(batch)):
                return
            yield batch

    def pipelines(self, batch: int) -> Iterator[StagedModel]:
        """Yield those that fit, by their number of stages."""
        for strategies in self.groups.values():
            if pipeline := self.pipeline(strategies, batch):
                yield pipeline

    def pipeline(self, strategies: tuple[GalvatronStrategy, ...], batch: int) -> StagedModel | None:
        """Return the stages with these strategies; None where they do not fit."""
        division = self.groups[strategies[0].num_stages]
        made = make_pipeline(self.constants, self.layer_counts, strategies, division, batch, self.memory_mib)
        return made if made is not None and made.fits else None

    @property
    def batches_below(self) -> int:
        """The first batch that is not tried any more."""
        if self.constants.has_equal_layers:
            return _BATCHES_BELOW
        return _DIVIDED_BELOW.get(self.constants.family, _BATCHES_BELOW)

    @property
    def step(self) -> int:
        """From one batch to the next."""
        if self.constants.num_gpus == 8:
            return 8
        is_large_step = self.constants.family in ("vit", "swin") and sum(self.layer_counts) < 48
        return 32 if is_large_step else 16 if self.method == "dp+tp" else 8

    def first_batch(self) -> int:
        """Return the batch between the smallest and the largest that plans with one strategy reach."""
        num_gpus = self.constants.num_gpus
        one_kind = [
            GalvatronStrategy(1, 1, num_gpus),
            GalvatronStrategy(1, num_gpus, 1),
            GalvatronStrategy(num_gpus, 1, 1),
            GalvatronStrategy(1, 1, num_gpus, sharded=True),
        ]
        largest = [
            self.largest_batch(each) for each in one_kind if each in self.groups.get(each.num_stages, ())
        ]
        if not largest:
            return self.step
        share = 0.0 if self.method == "dp+pp" else 0.4 if num_gpus == 8 else 0.65
        estimate = min(largest) * (1 - share) + max(largest) * share
        return max(self.step, math.floor(estimate / self.step) * self.step)

    def largest_batch(self, strategy: GalvatronStrategy) -> int:
        """Return the largest batch that fits with one strategy for all layers.

        Defect: it is 0 where all fit.
        """
        step = self.step
        if self.constants.num_gpus == 16 and strategy.num_stages == 1:
            step = max(step, 16)
        for batch in range(step, self.batches_below, step):
            if self.pipeline((strategy,), batch) is None:
                return batch - step
        return 0


def _num_stages(strategy: GalvatronStrategy) -> int:
    return strategy.num_stages
