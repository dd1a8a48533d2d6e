"""The shapes that a chain of stages can have, from measured times and memory, or from ticks."""

from __future__ import annotations

from typing import Any

from placements import shapes
from placements.spec import Placement
from placements.stages import place, stages_of


def v_shape(num_devices: int = 4, *ticks: int, **options: Any) -> Placement:
    """Return a V-shape: of stages in ms and MiB, or of equal ones in ticks.

    Args:
        num_devices: As many stages.
        ticks: See `placements.shapes.v_shape`, where there are no options in ms and MiB.
        options: Those of `placements.stages.stages_of`, and ``split_backward`` (default: whether the input
            gradient's times are given) and ``num_chunks``; or those of `placements.shapes.v_shape`.

    Raises:
        StagesError: An option is wrong.
        PlacementError: Likewise, in ticks.

    >>> placement = v_shape(2, forward_ms=[10, 12.5], backward_ms=25, activation_mib=300, memory_mib=700)
    >>> placement.ms(placement.by_name["F1"].time), placement.mib(placement.memory[0])
    (12.5, 700.0)
    """
    return _made("v_shape", num_devices, ticks, options)


def x_shape(num_devices: int = 4, *ticks: int, **options: Any) -> Placement:
    """Return an X-shape; see `v_shape`. Each device holds two stages, and their weights."""
    return _made("x_shape", num_devices, ticks, options)


def loop_shape(num_devices: int = 4, *ticks: int, **options: Any) -> Placement:
    """Return a loop of `num_chunks` pieces on each device; see `v_shape`. A stage is cut where it must be."""
    return _made("loop_shape", num_devices, ticks, options)


def wave_shape(num_devices: int = 4, *ticks: int, **options: Any) -> Placement:
    """Return a wave; see `loop_shape`."""
    return _made("wave_shape", num_devices, ticks, options)


def _made(shape: str, num_devices: int, ticks: tuple[int, ...], options: dict[str, Any]) -> Placement:
    if not any(name.endswith(("_ms", "_mib")) for name in options):
        return shapes.SHAPES[shape](num_devices, *ticks, **options)
    is_split = options.pop("split_backward", "input_gradient_ms" in options)
    num_chunks = options.pop("num_chunks", 2)
    columns = (name for name in options if name not in ("memory_mib", "transfer_ms", "input_gradient_share"))
    are_numbers = all(isinstance(options[name], (int, float)) for name in columns)
    stages = stages_of(num_devices if are_numbers else None, num_devices=num_devices, **options)
    return place(stages, shape, is_split, num_chunks).placement
