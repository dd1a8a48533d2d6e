"""Throughput of parallel configurations and ways of running a model, by costs from data sheets.

An iteration takes (m + p - 1) times the longest stage, and once the exchange of gradients. The module knows
no figure.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.reproduce.dissertation.closed_forms import gpt, iteration_flops
from experiments.reproduce.dissertation.published import SEQUENCE_LENGTH
from placements.cluster import read_cluster
from placements.models.chain import ModelShape
from placements.models.costing.layer_costs import layer_cost
from placements.models.parallel import Cost, LayerStrategy, Recompute

_FP16_BYTES = 2


@dataclass(frozen=True)
class Gpt:
    """A model of chapter 4.

    Attributes:
        num_layers: Transformer layers.
        hidden_size: Width.
        num_heads: Attention heads.
    """

    num_layers: int
    hidden_size: int
    num_heads: int

    @property
    def shape(self) -> ModelShape:
        """The model's layers."""
        return gpt(self.num_layers, self.hidden_size, self.num_heads)

    def tflops(self, batch_size: int, time_ms: float, num_gpus: int) -> float:
        """Return the teraFLOP/s of each GPU, in eq. 4.2's operations, where an iteration takes so long."""
        flops = iteration_flops(self.num_layers, self.hidden_size, batch_size)
        return flops / (time_ms * 1e-3 * num_gpus) / 1e12


GPT_3 = Gpt(96, 12_288, 96)


@dataclass(frozen=True)
class ParallelConfiguration:
    """How GPUs share a model.

    Attributes:
        tensor_parallel: t.
        num_stages: p.
        data_parallel: d.
    """

    tensor_parallel: int
    num_stages: int
    data_parallel: int

    @property
    def num_gpus(self) -> int:
        """All of them, n."""
        return self.tensor_parallel * self.num_stages * self.data_parallel

    def __str__(self) -> str:
        """Name it as the dissertation does."""
        return f"(t, p, d) = ({self.tensor_parallel}, {self.num_stages}, {self.data_parallel})"


def tflops_per_gpu(
    model: Gpt, how: ParallelConfiguration, batch_size: int, micro_batch_size: int = 1
) -> float:
    """Return the throughput of each GPU, in eq. 4.2's operations, with all activations computed again.

    Args:
        model: Its shape.
        how: On A100, eight in a node; a stage's GPUs are neighbours.
        batch_size: Sequences, B; a multiple of d b.
        micro_batch_size: Sequences of one pipeline, b.
    """
    num_micro_batches = batch_size // (how.data_parallel * micro_batch_size)
    cluster = read_cluster(f"a100_{how.num_gpus}")
    group = cluster.group(0, how.tensor_parallel * how.data_parallel)
    strategy = LayerStrategy(how.tensor_parallel, how.data_parallel, recompute="full")
    samples = micro_batch_size * how.data_parallel
    layer, output = (
        layer_cost(each, strategy, samples, num_micro_batches, group)
        for each in (model.shape.layers[1], model.shape.layers[-1])
    )
    layers = model.num_layers / how.num_stages
    stage_ms = layers * (layer.forward.time_ms + layer.backward.time_ms)
    last_ms = output.forward.time_ms + output.backward.time_ms
    time_ms = (num_micro_batches + how.num_stages - 1) * stage_ms + num_micro_batches * last_ms
    time_ms += layers * layer.update_ms
    return model.tflops(batch_size, time_ms, how.num_gpus)


@dataclass(frozen=True)
class IterationWay:
    """How an iteration of a pipeline runs.

    Attributes:
        recomputes: Whether all activations are computed again.
        num_chunks: Pieces of each device, v; above 1 interleaved.
        is_scattered: Whether each GPU of a node sends its own part of what goes to the next node.
    """

    recomputes: bool = True
    num_chunks: int = 1
    is_scattered: bool = True


@dataclass(frozen=True)
class IterationEstimate:
    """What an iteration takes.

    Attributes:
        time_ms: Time of all of it.
        memory_gib: What a GPU of the first stage holds.
        memory_limit_gib: What that GPU has.
    """

    time_ms: float
    memory_gib: float
    memory_limit_gib: float

    @property
    def fits(self) -> bool:
        """Whether the first stage has the memory."""
        return self.memory_gib <= self.memory_limit_gib


def iteration(
    model: Gpt, how: ParallelConfiguration, batch_size: int, way: IterationWay
) -> IterationEstimate:
    """Return what an iteration of micro-batches of one sequence takes.

    Devices wait for what they send to the next node and receive from it. Each device holds what it keeps of
    as many micro-batches as there are stages.

    Args:
        model: Its shape.
        how: On A100, eight in a node, a stage in each.
        batch_size: Sequences.
        way: Way of running.
    """
    cluster = read_cluster(f"a100_{how.num_gpus}")
    nodes = [cluster.group(first, how.tensor_parallel) for first in (0, how.tensor_parallel)]
    cost = _stage_cost(model, how, batch_size // how.data_parallel, way)
    sent = SEQUENCE_LENGTH * model.hidden_size * _FP16_BYTES
    hop_ms = nodes[0].hand_over_ms(nodes[1], sent, how.tensor_parallel, is_scattered=way.is_scattered)
    num_micro_batches = batch_size // how.data_parallel
    stage_ms = cost.forward.time_ms + cost.backward.time_ms
    hops_ms = 2 * way.num_chunks * hop_ms  # there and back
    rounds = num_micro_batches + (how.num_stages - 1) / way.num_chunks
    kept = min(num_micro_batches, how.num_stages) * cost.kept_bytes
    held = cost.static_bytes + max(cost.forward_bytes, cost.backward_bytes) + kept
    return IterationEstimate(
        rounds * (stage_ms + hops_ms) + cost.update_ms, held / 2**30, nodes[0].memory_gib
    )


def _stage_cost(model: Gpt, how: ParallelConfiguration, num_micro_batches: int, way: IterationWay) -> Cost:
    """Return the cost of a stage's layers; all stages have as many."""
    group = read_cluster(f"a100_{how.num_gpus}").group(0, how.tensor_parallel * how.data_parallel)
    again: Recompute = "full" if way.recomputes else "none"
    strategy = LayerStrategy(how.tensor_parallel, how.data_parallel, recompute=again)
    layer = layer_cost(model.shape.layers[1], strategy, how.data_parallel, num_micro_batches, group)
    return sum((layer for _ in range(model.num_layers // how.num_stages)), Cost())


def zero_3_tflops(model: Gpt, num_gpus: int, micro_batch_size: int, batch_size: int) -> float:
    """Return the throughput of each GPU where all share all weights and none a layer (ZeRO-3).

    Args:
        model: Its shape.
        num_gpus: A100, eight in a node.
        micro_batch_size: Sequences of each GPU.
        batch_size: Sequences; a multiple of the product of both.
    """
    group = read_cluster(f"a100_{num_gpus}").group(0, num_gpus)
    strategy = LayerStrategy(1, num_gpus, zero=3, recompute="full")
    number = batch_size // (num_gpus * micro_batch_size)
    layer, output = (
        layer_cost(each, strategy, num_gpus * micro_batch_size, number, group)
        for each in (model.shape.layers[1], model.shape.layers[-1])
    )
    costs = [(model.num_layers, layer), (1, output)]
    time_ms = sum(
        count * (number * (cost.forward.time_ms + cost.backward.time_ms) + cost.update_ms)
        for count, cost in costs
    )
    return model.tflops(batch_size, time_ms, num_gpus)
