"""What was measured of a model on its GPUs: the constants of Galvatron's cost model. It computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.reproduce.galvatron.search_2022.strategies import GalvatronStrategy

FAMILIES = ("bert", "vit", "t5", "swin")
"""Models that the original has scripts for; each has micro-batches and batches of its own."""


class ConstantsError(ValueError):
    """Constants are wrong; the message names the field, the value and the remedy in one line."""


@dataclass(frozen=True)
class LayerConstants:
    """What a layer of one type costs.

    Attributes:
        parameter_mib: Parameters of the layer, not shared.
        activation_mib: Activations of a layer and a sample on one GPU, by the tensor-parallel degree.
        synchronized_mib: Parameters whose gradients are exchanged; as `parameter_mib`.
        forward_ms: Time of the forward of a sample on one GPU.
        backward_over_forward: How much longer a backward takes.
        extra_overhead_ms: Of all layers together, where gradients are exchanged.
        sequence_length: Length of the tensor between layers.
        hidden_size: Width of the tensor between layers.
        is_decoder: It has six all-reduces of tensor parallelism, and not four.
        all_reduce_ms_per_mib: By the number of stages, then by the group: its GPUs, with ``_1`` or ``_0``
            where they are consecutive or strided and not the whole stage.
        transfer_ms_per_mib: Between stages, by their number; empty where the original has none.
        communication_slowdown: Slowdown of an all-reduce beside a backward.
        backward_slowdown: Slowdown of a backward beside an all-reduce.
        divided_by_layers: The overhead is of as many layers as the model has, and not of 24.
    """

    parameter_mib: float
    activation_mib: Mapping[int, float]
    synchronized_mib: float
    forward_ms: float
    backward_over_forward: float
    extra_overhead_ms: float
    sequence_length: int
    hidden_size: int
    is_decoder: bool
    all_reduce_ms_per_mib: Mapping[int, Mapping[str, float]]
    transfer_ms_per_mib: Mapping[int, float]
    communication_slowdown: float
    backward_slowdown: float
    divided_by_layers: bool


def all_reduce_groups(strategy: GalvatronStrategy) -> tuple[str, str]:
    """Return the names of the data-parallel and of the tensor-parallel group of a strategy."""
    tensor, data = str(strategy.tensor_parallel), str(strategy.data_parallel)
    if strategy.tensor_consecutive is None:
        return data, tensor
    return (f"{data}_0", f"{tensor}_1") if strategy.tensor_consecutive else (f"{data}_1", f"{tensor}_0")


@dataclass(frozen=True)
class OtherMemory:
    """What is not in layers, such as an embedding or a head.

    Attributes:
        states_mib: Parameters, gradients and optimizer states.
        activation_mib: Activation memory of a sample.
    """

    states_mib: float
    activation_mib: float


@dataclass(frozen=True)
class Constants:
    """The constants of one entry of the file.

    Attributes:
        name: ``family_hidden_Ngpus``.
        family: One of `FAMILIES`.
        num_gpus: 8 or 16.
        strategies: Those that a search may choose from, in their order.
        layer_types: In the order of the model; one where all layers are equal.
        other: With one stage; on 8 GPUs with any number.
        first_other: On the first of several stages; on 8 GPUs None.
        last_other: On the last of several stages; on 8 GPUs None.
        peak_reduction_mib: Of a sample, saved where there are many micro-batches.
        memory_family: Family whose rules for first and last stage hold.
    """

    name: str
    family: str
    num_gpus: int
    strategies: tuple[GalvatronStrategy, ...]
    layer_types: tuple[LayerConstants, ...]
    other: OtherMemory
    first_other: OtherMemory | None
    last_other: OtherMemory | None
    peak_reduction_mib: float
    memory_family: str

    @property
    def has_equal_layers(self) -> bool:
        """Whether there is one type of layers."""
        return len(self.layer_types) == 1
