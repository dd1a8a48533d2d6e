"""Shapes: the functions of `placements.shapes`, whose arguments are the options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from experiments.config.declaring import Option
from experiments.config.options import OptionError, did_you_mean, require
from experiments.search.kinds.data_parallel import with_data_parallel
from experiments.search.kinds.kind import Built, PlacementKind, power_model
from placements import Placement, PlacementError, Profile
from placements.hardware import Gpu
from placements.placement_file import by_device
from placements.shapes import SHAPES, options_of

SHAPE_MEANINGS = {
    "kind": "the function of placements.shapes; set by placement=",
    "num_devices": "devices of the pipeline; null: as many as the profile has stages, else 4",
    "num_chunks": "stages per device",
    "tick_ms": "duration of a tick, in ms",
    "num_gpus": "GPUs that each device stands for, one number or a list; a run has a process for each",
    "data_parallel": "groups of a block's GPUs that share the samples: one number, or as in {F0: 2}; null: 1",
}
"""Meanings of the options that all shapes have; others are declared by `placements.shapes`."""

OF_CHUNKS = {
    "num_devices": "devices of the pipeline; null: the profile's stages divided by num_chunks, else 4",
    "forward_time": "ticks, of one chunk",
}
"""Likewise, where a shape has several stages per device."""


def options_of_shape(name: str) -> tuple[Option, ...]:
    """Return the options of a shape: its function's arguments in ticks, and the options of all shapes."""
    own = options_of(SHAPES[name])
    meanings = SHAPE_MEANINGS | {each.name: each.meaning.text for each in own.values() if each.meaning}
    meanings |= OF_CHUNKS if "num_chunks" in own else {}
    of_all = {"tick_ms": 10.0, "num_gpus": 1, "data_parallel": None}
    defaults = {"kind": name} | {each.name: each.default for each in own.values()}
    defaults |= {"num_devices": None} | of_all
    return tuple(Option(each, default, meanings[each]) for each, default in defaults.items())


@dataclass(frozen=True)
class Shape(PlacementKind):
    """A shape.

    Attributes:
        kind: Its name in `SHAPES`.
        arguments: Arguments of its function.
        tick_ms: Length of a tick, in ms.
        num_gpus: GPUs that each device stands for.
        data_parallel: As `with_data_parallel` takes it.
    """

    kind: str
    arguments: Mapping[str, Any]
    tick_ms: float
    num_gpus: Any
    data_parallel: Any

    @classmethod
    def of_options(cls, data: Mapping[str, Any]) -> Self:
        """Return the shape that a `placement` group chooses."""
        of_all = {"tick_ms": 1.0, "num_gpus": None, "data_parallel": None}
        kind, defaults = data["kind"], options_of(SHAPES[data["kind"]])
        arguments = {name: value for name, value in data.items() if name not in ("kind", *of_all)}
        for key in arguments.keys() - defaults.keys():
            raise OptionError(f"placement.{key}: is not an option; {did_you_mean(key, [*defaults, *of_all])}")
        if arguments.get("num_devices") is None:
            arguments.pop("num_devices", None)  # the profile's, or the shape's default
        for key, value in arguments.items():
            where, wanted = f"placement.{key}", defaults[key].kind
            if key.endswith("_time") and isinstance(value, int):
                require(value > 0, where, value, "at least 1 tick", "give a whole number of ticks")
            require(
                type(value) is wanted, where, value, "true or false" if wanted is bool else "a whole number"
            )
        common = of_all | {name: data[name] for name in of_all if name in data}
        tick_ms = common["tick_ms"]
        require(type(tick_ms) in (int, float), "placement.tick_ms", tick_ms, "a number of milliseconds")
        return cls(kind, arguments, float(tick_ms), common["num_gpus"], common["data_parallel"])

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the shape, on as many devices as the profile has stages where the options do not say."""
        try:
            placement = self._placed(profile)
        except PlacementError as error:
            raise OptionError(f"placement.{error}") from None
        num_gpus = by_device("num_gpus", self.num_gpus, "placement.num_gpus", placement.num_devices) or ()
        placement = with_data_parallel(replace(placement, num_gpus=num_gpus), self.data_parallel)
        times = f"placeholders, the ticks of {self.kind}"
        return Built(placement, times, power_model(gpu), True, placement.memory_unit_mib)

    def _placed(self, profile: Profile | None) -> Placement:
        shape, arguments = SHAPES[self.kind], dict(self.arguments)
        if profile is not None and (profiled := _num_devices(partial(shape, **arguments), profile)):
            number = arguments.setdefault("num_devices", profiled)
            require(
                number == profiled,
                "placement.num_devices",
                number,
                f"the {profiled} on which {self.kind} has the profile's blocks",
                f"set placement.num_devices={profiled} or give another profile",
            )
        return replace(shape(**arguments), tick_ms=self.tick_ms)


def _num_devices(shape: Callable[..., Placement], profile: Profile) -> int | None:
    """Return on how many devices a shape has the blocks of a profile and no others; None where on none."""
    for number in range(1, len(profile.points) + 1):
        with suppress(PlacementError):
            if profile.points.keys() == shape(num_devices=number).runs.keys():
                return number
    return None
