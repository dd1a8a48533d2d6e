"""A GPT on GPUs whose links are all as fast as their own: what its layers and its vocabulary cost.

The rules are those of `placements.models.costing`. The module does not know a stage or a device.
"""

from __future__ import annotations

from dataclasses import dataclass

from placements.cluster import Cluster, DeviceGroup, Nodes
from placements.models.costing.layer_costs import layer_cost
from placements.models.costing.options import OVERLAP_SLOWDOWN, CostOptions
from placements.models.gpt.gpt_config import GptConfig
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy, VocabularyStrategy
from placements.models.rates import Rates


@dataclass(frozen=True)
class Workload:
    """Model, rates and number of micro-batches that all layers have in common.

    Attributes:
        config: The model, and a micro-batch of all data-parallel groups together; `recompute` is each
            layer's own, whatever it says.
        rates: What a GPU reaches.
        num_micro_batches: Micro-batches of an iteration. With several, gradients are added up before they are
            exchanged.
        overlap_slowdown: See `placements.models.costing.options.CostOptions`.

    Raises:
        PlacementError: The slowdown is out of its range.
    """

    config: GptConfig
    rates: Rates
    num_micro_batches: int
    overlap_slowdown: float = OVERLAP_SLOWDOWN

    def __post_init__(self) -> None:
        """Check the slowdown."""
        self._options()

    def layer_cost(self, strategy: LayerStrategy) -> Cost:
        """Return what a transformer layer costs each GPU that shares it."""
        return self._cost(self.config.layer, strategy)

    def embedding_cost(self, strategy: VocabularyStrategy, num_gpus: int) -> Cost:
        """Return what the embedding of tokens and positions costs on each of a stage's GPUs."""
        return self._cost(self.config.embedding, strategy.on(num_gpus))

    def output_cost(self, strategy: VocabularyStrategy, num_gpus: int, tied: bool) -> Cost:
        """Return what the output layer and the loss cost on each of a stage's GPUs.

        Args:
            strategy: How they share it.
            num_gpus: GPUs of the stage.
            tied: The same GPUs hold the embedding, whose table it is.
        """
        return self._cost(self.config.output(tied), strategy.on(num_gpus))

    def _cost(self, layer: Layer, strategy: LayerStrategy) -> Cost:
        return layer_cost(
            layer,
            strategy,
            self.config.micro_batch_size,
            self.num_micro_batches,
            self._group(strategy.num_gpus),
            self._options(),
        )

    def _options(self) -> CostOptions:
        return CostOptions(
            self.rates.model_flops_utilisation,
            self.rates.output_layer_utilisation,
            self.rates.memory_efficiency,
            self.overlap_slowdown,
        )

    def _group(self, num_gpus: int) -> DeviceGroup:
        """Return GPUs of one node, whose messages take no time to begin."""
        node = (Nodes(self.rates.gpu, 1, num_gpus),)
        link = self.rates.gpu.link_bandwidth_gb_s
        return Cluster(node, link, link_efficiency=self.rates.link_efficiency, latency_us=0.0).whole
