"""What the loss of each micro-batch counts in an update, where micro-batches have unequal numbers of tokens.

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
    """The parts of an update that losses are.

    Where forward blocks make several graphs, of which each reads micro-batches of its own, an update's tokens
    are those of all graphs.

    Args:
        weight: What a loss counts whose block has read a sample, such as its number of tokens.
        data: What is read.
        placement: What runs where.
        micro_batches_per_update: Micro-batches whose gradients make one update.
    """

    def __init__(
        self,
        weight: Callable[[Sample], float],
        data: ModelData,
        placement: Placement,
        micro_batches_per_update: int,
    ) -> None:
        """Begin with the first iteration."""
        self._weight, self._data, self._placement = weight, data, placement
        self._each = micro_batches_per_update
        self._graphs = [
            [block for block in graph if computes_loss(placement, block)]
            for graph in forward_graphs(placement)
        ]
        self.begin(0)

    def begin(self, iteration: int) -> None:
        """Forget what was read of another iteration."""
        self._iteration = iteration
        self._totals: dict[tuple[str, int], float] = {}

    def share(self, block: str, micro_batch: int, groups: Shards) -> float:
        """Return the part of an update that a block's loss of a micro-batch is, on one of its groups.

        Args:
            block: Block that computes the loss.
            micro_batch: Micro-batch of the iteration begun last.
            groups: The block's data-parallel groups, and which one it is.

        Raises:
            ModelError: Nothing in the update counts.
        """
        update = micro_batch // self._each
        if (block, update) not in self._totals:
            self._totals[block, update] = self._total(block, update, groups.count)
        total = self._totals[block, update]
        if total == 0:
            raise ModelError(
                f"module: loss_weight is 0 for all targets of iteration {self._iteration}, so no loss "
                "counts; let one in each update be positive"
            )
        sample = self._data.read(block, self._iteration, micro_batch).share(groups.index, groups.count)
        # A block of one of several graphs returns a loss that is divided by their number.
        return self._weight(sample) / total * len(self._graphs)

    def _total(self, block: str, update: int, num_groups: int) -> float:
        """Return what all losses of an update count together."""
        place = next(graph.index(block) for graph in self._graphs if block in graph)
        micro_batches = range(update * self._each, (update + 1) * self._each)
        return sum(
            self._weight(self._data.read(graph[place], self._iteration, n).share(index, num_groups))
            for n in micro_batches
            for graph in self._graphs
            for index in range(num_groups)
        )
