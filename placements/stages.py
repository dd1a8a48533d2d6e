"""A model as a chain of stages with times and memory, and the same cut into other pieces, exactly.

The form in which people have a model: milliseconds and MiB of each stage, or of each layer. It does not know
devices' order and schedules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from placements.planners.partition import least_largest

Number = float | Fraction
"""Milliseconds or MiB: as given, or an exact part or sum of such."""


class StagesError(ValueError):
    """Stages are wrong, or cannot be placed as asked; the message names the field and the remedy."""


@dataclass(frozen=True)
class Stage:
    """What one piece of the model costs for one micro-batch.

    Attributes:
        forward_ms: Time of its forward block; above 0.
        backward_ms: Time of its whole backward block; above 0.
        input_gradient_ms: The part of `backward_ms` after which the stage before can go on; None where it is
            not known.
        activation_mib: Held from its forward block to the end of its backward.
        weight_mib: Held all the time: weights, gradients and optimizer states.
    """

    forward_ms: Number
    backward_ms: Number
    input_gradient_ms: Number | None = None
    activation_mib: Number = 0.0
    weight_mib: Number = 0.0

    @classmethod
    def merged(cls, stages: Sequence[Stage]) -> Stage:
        """Return several in one, exactly; its input gradient is not known where one of theirs is not."""
        inputs = [each.input_gradient_ms for each in stages if each.input_gradient_ms is not None]
        return cls(
            _sum(each.forward_ms for each in stages),
            _sum(each.backward_ms for each in stages),
            _sum(inputs) if len(inputs) == len(stages) else None,
            _sum(each.activation_mib for each in stages),
            _sum(each.weight_mib for each in stages),
        )

    def part_of(self, number: int) -> Stage:
        """Return one of so many equal parts, exactly."""
        return Stage(
            exact(self.forward_ms) / number,
            exact(self.backward_ms) / number,
            None if self.input_gradient_ms is None else exact(self.input_gradient_ms) / number,
            exact(self.activation_mib) / number,
            exact(self.weight_mib) / number,
        )


@dataclass(frozen=True)
class DevicePower:
    """What a device uses, in W.

    Attributes:
        running: While it computes.
        blocking: While it waits.
    """

    running: float
    blocking: float


@dataclass(frozen=True)
class StageChain:
    """A model: pieces of which each hands its output to the next, and the devices for them.

    Attributes:
        pieces: The stages, or the layers of which stages are made.
        num_devices: At least 1.
        memory_mib: Capacity of each device; None for no limit.
        transfer_ms: Time from the end of a block to where its output is on another device.
        input_gradient_share: Part of a backward block that its input gradient takes, where the stages do not
            tell.
        are_layers: The pieces are divided among stages as they are. Otherwise a stage may be cut in parts.
        power_w: Of each device; None where it is not known.
    """

    pieces: tuple[Stage, ...]
    num_devices: int
    memory_mib: tuple[float, ...] | None = None
    transfer_ms: float = 0.0
    input_gradient_share: float = 0.5
    are_layers: bool = False
    power_w: DevicePower | None = None

    @property
    def knows_halves(self) -> bool:
        """Whether every piece tells the time of its input gradient apart from that of its weights."""
        return all(each.input_gradient_ms is not None for each in self.pieces)

    @property
    def note_of_split(self) -> str:
        """What is assumed where the backward is split."""
        if not self.knows_halves:
            return f"input gradient assumed to take {self.input_gradient_share:.0%} of each backward"
        return "split backward"

    def with_known_halves(self, chunk: Stage) -> Stage:
        """Return a chunk with its input gradient, the share of the backward where it is not known."""
        if chunk.input_gradient_ms is not None:
            return chunk
        return replace(chunk, input_gradient_ms=exact(chunk.backward_ms) * exact(self.input_gradient_share))

    def in_chunks(self, number: int) -> tuple[tuple[Stage, ...], str]:
        """Return the model in so many pieces, and how they were made; empty where they are its own.

        Layers are divided such that the longest piece is as short as possible.

        Raises:
            StagesError: There is no way to make so many.
        """
        count = len(self.pieces)
        if number == count:
            return self.pieces, ""
        if self.are_layers and number < count:
            sizes = least_largest([float(each.forward_ms + each.backward_ms) for each in self.pieces], number)
            ends = [sum(sizes[: i + 1]) for i in range(number)]
            merged = [Stage.merged(self.pieces[a:b]) for a, b in pairwise([0, *ends])]
            return tuple(merged), f"layers of each chunk: {','.join(map(str, sizes))}"
        if not self.are_layers and number % count == 0:
            parts = number // count
            return tuple(
                each.part_of(parts) for each in self.pieces for _ in range(parts)
            ), f"each stage cut into {parts} equal parts"
        if not self.are_layers and count % number == 0:
            size = count // number
            pieces = self.pieces
            return tuple(
                Stage.merged(pieces[i : i + size]) for i in range(0, count, size)
            ), f"{size} stages in each chunk"
        what = "layers" if self.are_layers else "stages"
        raise StagesError(f"{what}: {count} cannot be made into {number} chunks; choose another num_devices")


def _sum(numbers: Iterable[Number]) -> Fraction:
    return sum(map(exact, numbers), Fraction(0))


def exact(number: Number) -> Fraction:
    """Return a number as the fraction that its decimals are."""
    return number if isinstance(number, Fraction) else Fraction(str(number))
