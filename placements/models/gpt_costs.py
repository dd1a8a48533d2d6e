"""What the blocks of a GPT in stages cost, before times become ticks: layers by stage, and memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from placements.models.costs import STATIC_BYTES
from placements.models.parallel import Cost, LayerStrategy, Pass, VocabularyStrategy
from placements.models.rates import Rates
from placements.models.transformer import GptConfig, layer_parameters, layer_working_bytes
from placements.models.workload import Workload
from placements.spec import PlacementError


@dataclass(frozen=True)
class SharedGpt:
    """A model on devices that each stand for some GPUs.

    Attributes:
        config: The model, with the samples of one data-parallel group.
        rates: What a GPU reaches.
        strategy: How the GPUs of a device share its layers.
        layer_forward: Time of one layer's forward on one micro-batch.
        layer_backward: Likewise of its backward.
        layer_kept_bytes: What each GPU holds of one layer from the one to the other.
    """

    config: GptConfig
    rates: Rates
    strategy: LayerStrategy
    layer_forward: Pass
    layer_backward: Pass
    layer_kept_bytes: float

    @classmethod
    def of(
        cls, config: GptConfig, rates: Rates, num_devices: int, num_gpus: int, data_parallel: int
    ) -> SharedGpt:
        """Check the numbers, and return what a layer takes.

        Raises:
            PlacementError: A number is out of its range, or does not divide what it shares.
        """
        _check_stages(config, num_devices)
        for name, number in (("num_gpus", num_gpus), ("data_parallel", data_parallel)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise PlacementError(f"{name}: {number!r} is not a whole number of at least 1; give one")
        for what, count in (
            ("GPUs of a device", num_gpus),
            ("samples of a micro-batch", config.micro_batch_size),
        ):
            if count % data_parallel:
                raise PlacementError(
                    f"data_parallel: {data_parallel} does not divide the {count} {what}; give a divisor"
                )
        tensor_parallel = num_gpus // data_parallel
        if config.num_heads % tensor_parallel:
            raise PlacementError(
                f"num_gpus: {num_gpus} in {data_parallel} data-parallel groups are {tensor_parallel} GPUs "
                f"that share a layer, which does not divide num_heads {config.num_heads}; change one of them"
            )
        strategy = LayerStrategy(
            tensor_parallel, data_parallel, recompute="full" if config.recompute else "none"
        )
        work = Workload(config, rates, num_micro_batches=1)  # their number counts with ZeRO alone
        layer = work.layer_cost(strategy)
        group = work.of_group(data_parallel, config.recompute)
        return cls(group, rates, strategy, layer.forward, layer.backward, layer.kept_bytes)

    def ends(self, shards: int) -> tuple[Cost, Cost]:
        """Return what embedding and output layer cost each of so many GPUs that share a group's samples."""
        work, strategy = Workload(self.config, self.rates, num_micro_batches=1), VocabularyStrategy(shards)
        return work.embedding_cost(strategy, shards), work.output_cost(strategy, shards, tied=False)

    @property
    def layer_parameters(self) -> float:
        """Parameters of a layer on each GPU."""
        return layer_parameters(self.config) / self.strategy.tensor_parallel


@dataclass(frozen=True)
class BlockPair:
    """A forward block and its backward, before times become ticks.

    Attributes:
        forward: Name of the forward block.
        backward: Name of the backward block.
        devices: Of both.
        forward_ms: Time of the forward.
        backward_ms: Time of the backward.
        kept_bytes: What each device holds from the one to the other.
    """

    forward: str
    backward: str
    devices: tuple[int, ...]
    forward_ms: float
    backward_ms: float
    kept_bytes: float

    @property
    def kept_mib(self) -> int:
        """Return what each device holds, rounded up."""
        return math.ceil(self.kept_bytes / 2**20)


def even_shares(num_layers: int, num_stages: int) -> list[int]:
    """Return the layers of each stage, as even as possible; earlier stages have the extra ones.

    >>> even_shares(10, 4)
    [3, 3, 2, 2]
    """
    fewer, extra = divmod(num_layers, num_stages)
    return [fewer + (stage < extra) for stage in range(num_stages)]


def least_largest_shares(num_layers: int, layer_ms: float, other_ms: Sequence[float]) -> list[int]:
    """Return the layers of each stage such that the largest stage takes the least time.

    Layers cost the same, so each may go where it makes the least sum; a stage between the ends gets at
    least one.

    >>> least_largest_shares(10, 1.0, [0.5, 0.0, 0.0, 2.8])
    [3, 3, 3, 1]
    """
    last = len(other_ms) - 1
    shares = [0 if stage in (0, last) and other_ms[stage] > 0 else 1 for stage in range(last + 1)]
    for _ in range(num_layers - sum(shares)):
        sums = [other + (share + 1) * layer_ms for share, other in zip(shares, other_ms, strict=True)]
        shares[sums.index(min(sums))] += 1
    return shares


def stage_pairs(shared: SharedGpt, shares: Sequence[int]) -> list[BlockPair]:
    """Return the blocks of the stages that have so many layers each."""
    return [
        BlockPair(
            f"F{stage}",
            f"B{stage}",
            (stage,),
            share * shared.layer_forward.time_ms,
            share * shared.layer_backward.time_ms,
            share * shared.layer_kept_bytes,
        )
        for stage, share in enumerate(shares)
    ]


def capacities(shared: SharedGpt, pairs: Sequence[BlockPair], parameters: Sequence[float]) -> tuple[int, ...]:
    """Return the MiB that each GPU of a device has for activations.

    Raises:
        PlacementError: They do not hold those of one micro-batch.
    """
    config, rates, tensor_parallel = shared.config, shared.rates, shared.strategy.tensor_parallel
    working_gib = layer_working_bytes(config, tensor_parallel) / 2**30 if config.recompute else 0.0
    found = []
    for device, count in enumerate(parameters):
        static_gib = STATIC_BYTES * count / 2**30
        needed_mib = sum(pair.kept_mib for pair in pairs if device in pair.devices)
        free_gib = rates.gpu.memory_gib - rates.reserve_gib - static_gib - working_gib
        found.append(math.floor(free_gib * 1024))
        if found[-1] < needed_mib:
            raise PlacementError(
                f"num_devices: with {len(parameters)}, device {device} needs {static_gib:.1f} GiB for "
                f"parameters, {needed_mib / 1024 + working_gib:.1f} for one micro-batch and "
                f"{rates.reserve_gib:g} in reserve; {rates.gpu.name} has {rates.gpu.memory_gib:g}; use more "
                "devices, a smaller micro_batch_size or a smaller vocab_size"
            )
    return tuple(found)


def _check_stages(config: GptConfig, num_devices: int) -> None:
    if isinstance(num_devices, bool) or not isinstance(num_devices, int) or num_devices < 1:
        raise PlacementError(f"num_devices: {num_devices!r} is not a whole number of at least 1; give one")
    if config.num_layers < num_devices:
        raise PlacementError(
            f"num_layers: {config.num_layers} is fewer than {num_devices} stages; use at least {num_devices}"
        )
