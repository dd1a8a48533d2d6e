"""Shapes: the functions of `placements.shapes`, whose arguments are the options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import field, make_dataclass, replace
from functools import partial
from typing import Any

from experiments.config.options import OptionError, require
from experiments.search.kinds.kind import Built, PlacementKind, power_model, with_data_parallel
from placements import Placement, PlacementError, Profile
from placements.forms.meaning import Meaning, option
from placements.hardware import Gpu
from placements.placement_file import by_device
from placements.shapes import SHAPES, shape_options


class Shape(PlacementKind):
    """A shape: the options that all of them have; `record_of` adds the arguments of its function."""

    kind: str
    tick_ms: float
    num_gpus: int | tuple[int, ...] | None
    data_parallel: int | None

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of its function; without devices where it has as many as the profile, or as usual."""
        given = {name: getattr(self, name) for name in shape_options(SHAPES[self.kind])}
        return {name: value for name, value in given.items() if value is not None}

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the shape, on as many devices as the profile has stages where the options do not say."""
        try:
            placement = self._placed(profile)
        except PlacementError as error:
            raise OptionError(f"placement.{error}") from None
        num_gpus = by_device("num_gpus", self.num_gpus, "placement.num_gpus", placement.num_devices) or ()
        placement = with_data_parallel(replace(placement, num_gpus=num_gpus), self.data_parallel)
        return Built(placement, f"placeholders, the ticks of {self.kind}", power_model(gpu), True)

    def _placed(self, profile: Profile | None) -> Placement:
        shape, arguments = SHAPES[self.kind], self.arguments
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


def record_of(name: str) -> type[Shape]:
    """Return the record of a shape's options: its function's arguments in ticks, then the common options."""
    arguments, devices = shape_options(SHAPES[name]), "as many as the profile has stages"
    texts = {"num_chunks": "stages per device"}
    if "num_chunks" in arguments:
        texts["forward_time"], devices = "ticks, of one chunk", "the profile's stages divided by num_chunks"
    texts["num_devices"] = f"devices of the pipeline; null: {devices}, else 4"
    declared: list[tuple[str, Any, Any]] = [
        ("kind", str, option(name, "the function of placements.shapes; set by placement="))
    ]
    for argument in arguments.values():
        meaning = argument.meaning or Meaning("", min=1)
        meaning = replace(meaning, text=texts.get(argument.name, meaning.text))
        if argument.name.endswith("_time"):
            meaning = replace(meaning, min=1)
        is_devices = argument.name == "num_devices"
        kind, default = (int | None, None) if is_devices else (argument.kind, argument.default)
        declared.append((argument.name, kind, field(default=default, metadata={"meaning": meaning})))
    num_gpus = "GPUs that each device stands for, one number or a list; a run has a process for each"
    groups = "groups of each block's GPUs that share the samples; null: 1"
    declared += [
        ("tick_ms", float, option(10.0, "duration of a tick, in ms", above=0)),
        ("num_gpus", int | tuple[int, ...] | None, option(1, num_gpus)),
        ("data_parallel", int | None, option(None, groups, min=1)),
    ]
    namespace = {"__module__": __name__}
    return make_dataclass(name, declared, bases=(Shape,), frozen=True, kw_only=True, namespace=namespace)


def _num_devices(shape: Callable[..., Placement], profile: Profile) -> int | None:
    """Return on how many devices a shape has the blocks of a profile and no others; None where on none."""
    for number in range(1, len(profile.points) + 1):
        with suppress(PlacementError):
            if profile.points.keys() == shape(num_devices=number).runs.keys():
                return number
    return None
