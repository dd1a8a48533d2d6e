"""Layers as shapes: parameters, operations and bytes of one sample, in any precision, shared by any number.

Sizes are those of one GPU where `t` share the layer's matrices (tensor parallel). The module does not know
a GPU's share of its peak, nor its number of samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar

from placements.block import PlacementError
from placements.hardware import Gpu
from placements.models.operators import Work


@dataclass(frozen=True)
class Precision:
    """Sizes in bytes of the numbers that a model is trained with, by kind of number.

    Attributes:
        name: ``half`` has 16-bit weights and gradients beside 32-bit master weights and moments of Adam;
            ``bf16`` adds gradients up in 32 bits, as Megatron-LM does; ``single`` has 32 bits everywhere;
            ``tf32`` too, but products on the matrix units where a GPU's can. The others are ``bf16`` whose
            products of layers have inputs of 8 or 4 bits: ``fp8`` scaled by tensor, ``fp8_blockwise`` by
            blocks of 128, ``mxfp8`` by 32 and ``nvfp4`` by 16 numbers.
        number_bytes: Bytes of an activation, and of a number in messages.
        peaks: Fields of a GPU with the peak of products, the first that it has; the last for 16-bit ones.
        weight_bytes: Bytes of a weight, with the copies that products read where these are cached; likewise
            `gradient_bytes`, and `optimizer_bytes` of all the optimizer's states for a parameter.
        product_bytes: Bytes of a number that is kept only because a product's backward reads it.
    """

    name: str
    number_bytes: int
    peaks: tuple[str, ...] = ("peak_tflops",)
    weight_bytes: float = 2
    gradient_bytes: float = 2
    optimizer_bytes: float = 12
    product_bytes: float = 2

    @property
    def update_bytes(self) -> float:
        """Bytes that an optimizer step reads and writes for a parameter.

        The gradient is read, states are read and written; so is the weight, unless a master weight among
        the states stands for it: then it is written alone.
        """
        weight = self.number_bytes * (1 if self.optimizer_bytes > 8 else 2)
        return self.gradient_bytes + 2 * self.optimizer_bytes + weight

    @property
    def is_frozen(self) -> bool:
        """Whether weights have no gradients: backwards compute input gradients alone, as with adapters.

        Products of the adapters (LoRA, Hu et al., 2021) are below a percent and left out.
        """
        return self.gradient_bytes == 0

    @property
    def has_casts(self) -> bool:
        """Whether products read numbers of 8 or 4 bits, cast from 16 bits."""
        return self.product_bytes < self.number_bytes

    @property
    def with_16_bit_weights(self) -> Precision:
        """The precision with 16-bit weights beside the two copies in 8 or 4 bits."""
        return replace(self, weight_bytes=2 + self.weight_bytes) if self.has_casts else self

    def is_on(self, gpu: Gpu) -> bool:
        """Return whether a GPU has products of 8 or 4 bits where the precision has them."""
        return not self.has_casts or getattr(gpu, self.peaks[0]) is not None

    def peak_tflops(self, gpu: Gpu, exact: bool = False) -> float:
        """Return the peak of a GPU's matrix products, 1e12 operations per second.

        Where it lacks the precision, the next wider one is taken. Exact products stay in 16 bits, as those of
        the output layer and of attention cores do.
        """
        known: list[float | None] = [getattr(gpu, name, None) for name in self.peaks[-1 if exact else 0 :]]
        return next(peak for peak in known if peak is not None)


HALF = Precision("half", 2)
BF16 = Precision("bf16", 2, gradient_bytes=4)
SINGLE = Precision("single", 4, ("peak_fp32_tflops",), 4, 4, 8, 4)
TF32 = replace(SINGLE, name="tf32", peaks=("peak_tf32_tflops", "peak_fp32_tflops"))

# Weights of 8 and 4 bits stand once as they are and once transposed, for all micro-batches (Transformer
# Engine; Megatron-LM with --fp8-param-gather). A scale has 8 bits (mxfp8, nvfp4) or 32 (blockwise).
_SCALED = {"fp8": 1.0, "fp8_blockwise": 1 + 4 / 128, "mxfp8": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
_FP8_PEAKS = ("peak_fp8_tflops", "peak_tflops")
PRECISIONS = {precision.name: precision for precision in (HALF, BF16, SINGLE, TF32)} | {
    name: Precision(name, 2, ("peak_fp4_tflops",) * (size < 1) + _FP8_PEAKS, 2 * size, 4, 12, size)
    for name, size in _SCALED.items()
}
"""The precisions by name."""

SIXTEEN_BITS = (HALF.name, BF16.name)
"""Precisions whose products are in 16 bits, as in files of measured rates."""


@dataclass(frozen=True, kw_only=True)
class Layer(ABC):
    """A layer of a model, by its shape.

    Attributes:
        name: Kind of layer in words.
        may_be_zero: Sizes that may be 0; `shared_sizes` are those that GPUs which share matrices divide.
        reads_weights_backward: Its backward needs its weights: not so where it only looks rows up.

    Raises:
        PlacementError: A size is not a whole number of at least 1.
    """

    name: str = "layer"
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    shared_sizes: ClassVar[tuple[str, ...]] = ()
    reads_weights_backward: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check that every number is whole and at least 1, and every flag a truth value."""
        for field in fields(self):
            value, kind = getattr(self, field.name), str(field.type)
            if kind == "bool" and not isinstance(value, bool):
                raise PlacementError(f"{field.name}: {value!r} is not a truth value; use true or false")
            if not kind.startswith("int") or (value is None and "None" in kind):
                continue
            least = 0 if field.name in self.may_be_zero else 1
            if type(value) is not int or value < least:
                fault = f"{value!r} is not a whole number of at least {least}"
                raise PlacementError(f"{field.name}: {fault}; give one")

    @abstractmethod
    def fill(self, work: Work) -> None:
        """Add the layer's operators and kept tensors to a row of the table of costs."""

    def on(self, t: int, experts: int = 1, expert_t: int = 0, precision: Precision = HALF) -> Work:
        """Return the work of each GPU; see `Work`. `expert_t` 0 stands for `t`."""
        # Without gradients of weights no input of a product is kept for its backward.
        product_bytes = 0 if precision.is_frozen else precision.product_bytes
        key = t, experts, expert_t or t, precision.number_bytes, product_bytes
        if key not in self._works:
            self._works[key] = Work(*key)
            self.fill(self._works[key])
        return self._works[key]

    @cached_property
    def _works(self) -> dict[tuple[float, ...], Work]:
        return {}

    @property
    def owns_parameters(self) -> bool:
        """Whether the layer holds its weights, gradients and optimizer states itself, not another layer."""
        return True

    @property
    def num_routes(self) -> int:
        """Experts among which a router chooses; 0 without one."""
        return 0

    def check(self, t: int, experts: int) -> None:
        """Ensure that `t` GPUs can share the layer's matrices, and `experts` GPUs its experts.

        Raises:
            PlacementError: They cannot.
        """
        for name in self.shared_sizes:
            size = getattr(self, name)
            if size is not None and size % t:
                raise PlacementError(f"tensor_parallel: {t} does not divide {name} {size}; use a divisor")
        number, kind = getattr(self, "num_experts", 1), self.name
        if number % experts:
            fault = f"{experts} does not divide num_experts {number} of {kind!r}"
            raise PlacementError(f"expert_parallel: {fault}; use a divisor")

    @property
    def num_parameters(self) -> int:
        """All parameters of the layer, all experts included."""
        work = self.on(1)
        return round(work.parameters + work.expert_parameters) if self.owns_parameters else 0

    def forward_flops(self, t: int) -> float:
        """Return the operations of matrix products and cores on each GPU, two per multiply and add."""
        return self.on(t).forward_flops

    def kept(self, precision: Precision, t: int) -> tuple[float, float]:
        """Return the bytes that each GPU keeps from the forward to the backward, with nothing recomputed.

        First the bytes of tensors whole on each GPU, unless the sequence is shared too; then of shared ones.
        """
        whole = shared = 0.0
        for _, num_bytes, is_whole in self.on(t, precision=precision).kept:
            whole, shared = (whole + num_bytes, shared) if is_whole else (whole, shared + num_bytes)
        return whole, shared

    def output_elements(self) -> int:
        """Return the number of elements of the output, which passes to the next layer."""
        return self.on(1).outputs
