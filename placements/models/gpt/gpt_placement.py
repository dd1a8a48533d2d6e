"""Placements of a GPT, with times and memory from its shape and the data sheet of a GPU.

Times are computed, not measured: those of `placements.models.rates`, and where a device stands for several
GPUs, those of `placements.models.parallel`. The module does not know in what order blocks run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from placements.block import Kind, PlacementError
from placements.hardware import Gpu
from placements.models.gpt.checkpoints import checkpoints_of
from placements.models.gpt.gpt_config import (
    HALF_BYTES,
    GptConfig,
    hidden_bytes,
    layer_working_bytes,
)
from placements.models.gpt.workload import Workload
from placements.models.layers import HALF
from placements.models.memory_levers import Recompute, with_levers
from placements.models.parallel import Cost, LayerStrategy, Pass, VocabularyStrategy
from placements.models.parallel import Recompute as RecomputeKind
from placements.models.piece_placement import PieceCost, in_ticks
from placements.models.rates import COPY_COMPUTE_SHARE, Rates
from placements.pieces import Piece, blocks_of, transfers_of, updates_of
from placements.spec import Placement

__all__ = ["GPT_11B", "GptConfig", "gpt_compute_shares", "gpt_m_shape", "gpt_stage_layers", "gpt_v_shape"]

GPT_11B = GptConfig(
    num_layers=32,
    hidden_size=4096,
    num_heads=32,
    vocab_size=1_000_000,
    sequence_length=2048,
    micro_batch_size=2,
)
"""GPT-11B of Tessel (Table III). Two samples per micro-batch of 2048 tokens are our choice: the memory of
four A100 then holds seven micro-batches at once and not sixteen, so that it matters."""


def gpt_m_shape(
    config: GptConfig,
    gpu: Gpu,
    num_devices: int = 4,
    *,
    num_gpus: int = 1,
    data_parallel: int = 1,
    modes: Sequence[RecomputeKind] = (),
    tick_ms: float | None = None,
    **rates: float,
) -> Placement:
    """Return a GPT whose vocabulary stands on all devices and whose layers stand in stages (Tessel, Fig. 8a).

    Tessel's runs end with a sum in place of the output layer; ours have it, with the loss, because
    pre-training does. It is tied to the embedding, so both stand on the same rows of every device. ::

        0 | E  F0 .  .  .  H  HB .  .  .  .  .  .  B0 B0 EB
        1 | E  .  F1 .  .  H  HB .  .  .  .  B1 B1 .  .  EB
        2 | E  .  .  F2 .  H  HB .  .  B2 B2 .  .  .  .  EB
        3 | E  .  .  .  F3 H  HB B3 B3 .  .  .  .  .  .  EB

    E looks tokens up and all-reduces the result; H is the output layer with the loss. HB all-reduces the
    gradient of its input; EB adds the gradient of the embedding to that of the whole table. E's output is
    counted on every device until EB, which is more than they hold: it is needed on the first stage's device
    alone, as that stage's input.

    Where devices stand for several GPUs, those share the device's layers and rows (tensor parallel).

    Args:
        config: The model and its micro-batch.
        gpu: What every device is made of.
        num_devices: Stages of layers, and shards of the vocabulary.
        num_gpus: GPUs that each device stands for.
        data_parallel: 1: groups of a block on all devices would not be those of a stage.
        modes: What a search may let each stage compute again, for each micro-batch: ``selective``, ``full``
            or both.
        tick_ms: Length of a tick; by default the longest power of ten of which the shortest block has at
            least 100.
        rates: Shares of the GPU's peaks that are reached, by the names of `placements.models.rates.Rates`.

    Returns:
        Memory in MiB, rounded up; the capacity is what weights, gradients, optimizer and reserve leave.

    Raises:
        PlacementError: An argument is out of its range, or one micro-batch does not fit.
    """
    if data_parallel != 1:
        raise PlacementError(
            f"data_parallel: {data_parallel} is not 1, and arrangement m_shape is not costed with groups "
            "that share the samples; use arrangement=v_shape, or give 1"
        )
    shared = _SharedGpt.of(config, Rates(gpu, **rates), num_devices, num_gpus, data_parallel)
    shards = num_devices * num_gpus
    rows = math.ceil(config.vocab_size / shards)
    everywhere = tuple(range(num_devices))
    shares = _even_shares(config.num_layers, num_devices)
    looked_up, out = shared.ends(shards)
    embedding = PieceCost(everywhere, replace(looked_up, kept_bytes=hidden_bytes(config)), name="E")
    first, *stages = shared.stages(shares)
    output = PieceCost(everywhere, out, forward_transfer_ms=first.forward_transfer_ms, name="H")
    pieces = [embedding, first._replace(forward_transfer_ms=0.0), *stages, output]
    table = rows * config.hidden_size
    parameters = [share * shared.layer_parameters + table for share in shares]
    parameters[0] += config.sequence_length * config.hidden_size
    return _placement("gpt_m_shape", shared, pieces, shares, parameters, tick_ms, modes)


def gpt_v_shape(
    config: GptConfig,
    gpu: Gpu,
    num_devices: int = 4,
    *,
    num_gpus: int = 1,
    data_parallel: int = 1,
    modes: Sequence[RecomputeKind] = (),
    tick_ms: float | None = None,
    **rates: float,
) -> Placement:
    """Return a GPT in one stage per device, embedding in the first, output layer and loss in the last.

    The layers are split so that the largest stage takes the least time; a first or last stage may be left
    without any. First and last device each hold the whole table, as a tied table on two devices must be.

    Where devices stand for several GPUs, these are equal groups, each with its share of the samples, and
    the GPUs of a group share layers and table (tensor parallel). With several groups an O for each device
    exchanges their gradients after the last micro-batch; what the weights' update itself takes is left out,
    as it is with one.

    Args:
        config: The model, and a micro-batch of all groups together.
        gpu: What every device is made of.
        num_devices: Stages.
        num_gpus: GPUs that each device stands for.
        data_parallel: Groups of so many; a divisor.
        modes: See `gpt_m_shape`.
        tick_ms: Length of a tick.
        rates: See `gpt_m_shape`.

    Returns:
        Memory in MiB, as in `gpt_m_shape`.

    Raises:
        PlacementError: An argument is out of its range, or one micro-batch does not fit.
    """
    shared = _SharedGpt.of(config, Rates(gpu, **rates), num_devices, num_gpus, data_parallel)
    config, shards, last = shared.config, shared.strategy.tensor_parallel, num_devices - 1
    rows = math.ceil(config.vocab_size / shards)
    shares, ends = _chain(shared, num_devices)
    stages = zip(shared.stages(shares), ends, strict=True)
    pieces = [layers._replace(cost=layers.cost + end) for layers, end in stages]
    parameters = [share * shared.layer_parameters for share in shares]
    parameters[0] += (rows + config.sequence_length) * config.hidden_size
    parameters[last] += rows * config.hidden_size if last else 0
    return _placement("gpt_v_shape", shared, pieces, shares, parameters, tick_ms, modes)


def _chain(shared: _SharedGpt, num_devices: int) -> tuple[list[int], list[Cost]]:
    """Return the layers of each stage of a V-shape, and what its vocabulary costs."""
    looked_up, out = shared.ends(shared.strategy.tensor_parallel)
    ends = [Cost()] * num_devices
    ends[0] += looked_up
    ends[num_devices - 1] += out
    layer_ms = shared.layer_forward.time_ms + shared.layer_backward.time_ms
    ends_ms = [end.forward.time_ms + end.backward.time_ms for end in ends]
    return _min_largest_shares(shared.config.num_layers, layer_ms, ends_ms), ends


def gpt_stage_layers(
    config: GptConfig, gpu: Gpu, num_devices: int, num_gpus: int = 1, **rates: float
) -> list[int]:
    """Return how many layers each stage of `gpt_v_shape` has.

    Raises:
        PlacementError: An argument is out of its range.
    """
    return _chain(_SharedGpt.of(config, Rates(gpu, **rates), num_devices, num_gpus, 1), num_devices)[0]


def gpt_compute_shares(placement: Placement, config: GptConfig, rates: Rates) -> dict[str, float]:
    """Return the share of time that depends on the clock, of the blocks where it is not the GPU's own.

    Layers and output layer are matrix products, for which the power model of `placements.hardware.Gpu`
    has the share; the embedding's two blocks in an M-shape and the exchange of gradients are not. Where
    several GPUs share a layer, part of its time is the sum of what they computed, which is not one either.

    Args:
        placement: Placement from `gpt_m_shape` or `gpt_v_shape`.
        config: The model that it is of.
        rates: Rates of its GPUs.

    Returns:
        By block name, 0 to 1; for `placements.hardware.modelled_profile`.
    """
    shares = {
        block.name: COPY_COMPUTE_SHARE
        for block in placement.blocks
        if block.name in ("E", "EB") or block.kind is Kind.O
    }
    groups = placement.by_name["F0"].data_parallel
    shared = _SharedGpt.of(config, rates, placement.num_devices, placement.gpus[0], groups)
    if shared.strategy.tensor_parallel > 1:
        own, stages = rates.gpu.power.compute_share, range(placement.num_devices)
        for letter, part in (("F", shared.layer_forward), ("B", shared.layer_backward)):
            share = (own * part.product_ms + COPY_COMPUTE_SHARE * part.copy_ms) / part.time_ms
            shares |= {f"{letter}{stage}": share for stage in stages}
    return shares


_MODES = ("selective", "full")


@dataclass(frozen=True)
class _SharedGpt:
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
    ) -> _SharedGpt:
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
        group = replace(config, micro_batch_size=config.micro_batch_size // data_parallel)
        return cls(group, rates, strategy, layer.forward, layer.backward, layer.kept_bytes)

    def ends(self, shards: int) -> tuple[Cost, Cost]:
        """Return what embedding and output layer cost each of so many GPUs that share a group's samples."""
        work, strategy = Workload(self.config, self.rates, num_micro_batches=1), VocabularyStrategy(shards)
        embedding = work.embedding_cost(strategy, shards)
        return _passes(embedding), _passes(work.output_cost(strategy, shards, tied=False))

    def stages(self, shares: Sequence[int]) -> list[PieceCost]:
        """Return the stages that have so many layers each."""
        sent_ms, groups = self.rates.transfer_ms(hidden_bytes(self.config)), self.strategy.data_parallel
        forward_ms, backward_ms = self.layer_forward.time_ms, self.layer_backward.time_ms
        found = []
        for stage, share in enumerate(shares):
            kept_bytes = self.checkpoints(share) * self.layer_kept_bytes
            cost = Cost(Pass(share * forward_ms), Pass(share * backward_ms), kept_bytes)
            found.append(PieceCost((stage,), cost, groups, sent_ms, sent_ms, name=f"F{stage}"))
        return found

    def levers(
        self, placement: Placement, stage: int, share: int, modes: Sequence[RecomputeKind]
    ) -> list[Recompute]:
        """Return the modes of a stage of so many layers, which its backward computes again one by one.

        Raises:
            PlacementError: A mode is unknown or saves nothing, or everything is computed again anyway.
        """
        held, found = placement.by_name[f"F{stage}"].memory_on(stage), list[Recompute]()
        group = replace(self.strategy, data_parallel=1)  # the config is that of one group
        for mode in modes:
            if mode not in _MODES or self.strategy.recompute != "none":
                raise PlacementError(
                    f"modes: {mode!r} is none of {', '.join(_MODES)}, or recompute is true; give some of "
                    "these, and recompute=false"
                )
            again = Workload(self.config, self.rates, 1).layer_cost(replace(group, recompute=mode))
            saved_mib = (self.layer_kept_bytes - again.kept_bytes) / 2**20
            if saved_mib <= 0:
                raise PlacementError(
                    f"modes: {mode} saves nothing, as flash attention keeps no scores; leave it out, or give "
                    "flash_attention=false"
                )
            more_ms = share * (again.backward.time_ms - self.layer_backward.time_ms)
            time = max(1, round(more_ms / placement.tick_ms))
            kept, layer = held - math.floor(share * saved_mib), math.ceil(saved_mib)
            found.append(Recompute(kept, time, layer, "recompute" if mode == "full" else mode))
        return found if share else []

    @property
    def layer_working_bytes(self) -> float:
        """What each GPU holds while a layer is computed again."""
        return layer_working_bytes(self.config, self.strategy.tensor_parallel)

    def checkpoints(self, layers: int) -> int:
        """Return the layers of a stage of which it keeps what is kept of a layer."""
        wanted = self.config.checkpoints
        return checkpoints_of(wanted, layers, self.layer_kept_bytes, self.layer_working_bytes)

    def working_bytes(self, layers: int) -> float:
        """Return what each GPU holds while a stage's largest segment is computed again; else 0."""
        segments = self.checkpoints(layers) if self.config.recompute else 0
        return -(-layers // segments) * self.layer_working_bytes if segments else 0.0

    @property
    def layer_parameters(self) -> float:
        """Parameters of a layer on each GPU."""
        return self.config.layer.num_parameters / self.strategy.tensor_parallel


def _passes(cost: Cost) -> Cost:
    """Return the times and what is held from forward to backward alone."""
    return Cost(Pass(cost.forward.time_ms), Pass(cost.backward.time_ms), cost.kept_bytes)


def _even_shares(num_layers: int, num_stages: int) -> list[int]:
    """Return the layers of each stage, as even as possible; earlier stages have the extra ones.

    >>> _even_shares(10, 4)
    [3, 3, 2, 2]
    """
    fewer, extra = divmod(num_layers, num_stages)
    return [fewer + (stage < extra) for stage in range(num_stages)]


def _min_largest_shares(num_layers: int, layer_ms: float, other_ms: Sequence[float]) -> list[int]:
    """Return the layers of each stage such that the largest stage takes the least time.

    Layers cost the same, so each may go where it makes the least sum; a stage between the ends gets at
    least one.

    >>> _min_largest_shares(10, 1.0, [0.5, 0.0, 0.0, 2.8])
    [3, 3, 3, 1]
    """
    last = len(other_ms) - 1
    shares = [0 if stage in (0, last) and other_ms[stage] > 0 else 1 for stage in range(last + 1)]
    for _ in range(num_layers - sum(shares)):
        sums = [other + (share + 1) * layer_ms for share, other in zip(shares, other_ms, strict=True)]
        shares[sums.index(min(sums))] += 1
    return shares


def _placement(
    name: str,
    shared: _SharedGpt,
    costs: Sequence[PieceCost],
    shares: Sequence[int],
    parameters: Sequence[float],
    tick_ms: float | None,
    modes: Sequence[RecomputeKind],
) -> Placement:
    """Return the pieces on devices; where these have groups, each sums their gradients in the end."""
    pieces, tick_ms = in_ticks(costs, tick_ms)
    blocks, groups = blocks_of(pieces), shared.strategy.data_parallel
    if groups > 1:
        times_ms = [shared.rates.all_reduce_ms(HALF_BYTES * count, groups) for count in parameters]
        blocks += updates_of(pieces, [max(1, round(time_ms / tick_ms)) for time_ms in times_ms])
    placement = Placement(
        name,
        len(parameters),
        tuple(blocks),
        tick_ms,
        transfer=transfers_of(pieces),
        memory=_capacities(shared, pieces, shares, parameters, computes_again=bool(modes)),
        num_gpus=(shared.strategy.tensor_parallel * groups,) * len(parameters),
    )
    levers = {
        f"F{stage}": shared.levers(placement, stage, share, modes) for stage, share in enumerate(shares)
    }
    return with_levers(placement, levers) if modes else placement


def _capacities(
    shared: _SharedGpt,
    pieces: Sequence[Piece],
    shares: Sequence[int],
    parameters: Sequence[float],
    computes_again: bool,
) -> tuple[int, ...]:
    """Return the MiB that each GPU of a device has for activations.

    Raises:
        PlacementError: They do not hold those of one micro-batch.
    """
    rates, found = shared.rates, list[int]()
    for device, count in enumerate(parameters):
        working_gib = shared.working_bytes(shares[device]) / 2**30
        static_gib = HALF.static_bytes * count / 2**30
        kept_mib = sum(piece.blocks[0].memory_on(device) for piece in pieces)
        needed_mib = 0 if computes_again else kept_mib  # a search says whether any mode fits
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
            f"num_layers: {config.num_layers} is fewer than {num_devices} stages; use at least {num_devices} "
            "or fewer num_devices"
        )
