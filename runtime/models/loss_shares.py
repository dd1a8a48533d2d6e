"""Weights of losses in an update, where micro-batches have unequal numbers of tokens.

A loss is the mean over the tokens of a micro-batch, or of one data-parallel group's share of it. The mean
over all tokens of an update is the sum of these, each times its part of the update's tokens. The part is
known before any block has run, because targets can be read at any time.
"""

from __future__ import annotations

from collections.abc import Callable

from placements import Placement
from runtime.models.core.options import ModelError
from runtime.models.user.reading import ModelData, Sample
from runtime.program.tensor_flow import computes_loss, forward_graphs
from runtime.transport.shards import Shards


class LossShares:
    """The part of each loss in its update.

    Where forward blocks make several graphs, of which each reads micro-batches of its own, an update's tokens
    are those of all graphs. A block of one of them returns a loss that is divided by their number. The weight
    of a loss whose block has read a sample is such as its number of tokens.
    """

    def __init__(
        self,
        weight: Callable[[Sample], float],
        data: ModelData,
        placement: Placement,
        micro_batches_per_update: int,
    ) -> None:
        self._weight, self._data, self._each = weight, data, micro_batches_per_update
        graphs = forward_graphs(placement)
        self._graphs = [[block for block in graph if computes_loss(placement, block)] for graph in graphs]
        self.begin(0)

    def begin(self, iteration: int) -> None:
        """Forget the samples of another iteration."""
        self._iteration = iteration
        self._totals: dict[tuple[str, int], float] = {}

    def share(self, block: str, micro_batch: int, groups: Shards) -> float:
        """Return the part of an update that a block's loss of a micro-batch is, on one of its groups.

        Raises:
            ModelError: All targets of the update have weight 0.
        """
        update = micro_batch // self._each
        if (block, update) not in self._totals:
            place = next(graph.index(block) for graph in self._graphs if block in graph)
            self._totals[block, update] = sum(
                self._weight_of(graph[place], n, index, groups.count)
                for n in range(update * self._each, (update + 1) * self._each)
                for graph in self._graphs
                for index in range(groups.count)
            )
        total = self._totals[block, update]
        if total == 0:
            raise ModelError(
                f"module: loss_weight is 0 for all targets of iteration {self._iteration}, so no loss "
                "counts; let one in each update be positive"
            )
        return self._weight_of(block, micro_batch, groups.index, groups.count) / total * len(self._graphs)

    def _weight_of(self, block: str, micro_batch: int, index: int, count: int) -> float:
        return self._weight(self._data.read(block, self._iteration, micro_batch).share(index, count))
