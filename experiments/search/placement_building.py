"""Placements of a command: a shape, a GPT, a plan or a file, with the memory and the times of the options."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments.config.options import (
    OptionError,
    did_you_mean,
    read_fields,
    require,
    require_known,
    require_path,
)
from experiments.search.data_parallel import with_data_parallel
from experiments.search.options import Options
from experiments.search.placement_options import (
    FilePlacementOptions,
    GptPlacementOptions,
    StagesPlacementOptions,
)
from experiments.search.planned_options import kind_of, planned_by, read_gpu
from experiments.search.plans import PLAN_FILES, PLANNERS
from experiments.search.profile_reading import PROFILE_FILES, profile_path, times_source
from placements import Placement, PlacementError, Profile, ProfileError
from placements.hardware import Gpu
from placements.models.gpt.gpt_placement import GptConfig, gpt_m_shape, gpt_v_shape
from placements.pieces import PIPELINES
from placements.placement_file import read_capacity, read_num_gpus, read_placement
from placements.planners.galvatron import plan_placement
from placements.shapes import SHAPES, options_of
from placements.stages.stage_chain import PlacedStages, place
from placements.stages.stage_file import read_stages
from schedsearch.bounds.memory_need import require_capacity

log = logging.getLogger(__name__)

GPT_ARRANGEMENTS = {"m_shape": gpt_m_shape, "v_shape": gpt_v_shape}
"""The placements of a GPT by the name that the command line uses."""


def build_placement(options: Options, profile: Profile | None) -> Placement:
    """Return the placement that the options choose, with their memory, and block times of the profile."""
    placement = _chosen_placement(options, profile)
    if options.search.memory is not None:
        given, unit_mib = options.search.memory, _unit_mib(options, placement)
        capacity = read_capacity(given, "search.memory", placement.num_devices, unit_mib=unit_mib)
        placement = replace(placement, memory=capacity)
    if profile is not None:
        try:
            timed = profile.times_for(placement)
        except ProfileError as error:
            raise OptionError(f"{options.profile.path}: {error}") from None
        hint = profile.doubtful_times(placement, "profile.time_scale")
        if hint and not times_source(options)[1]:
            log.warning("warning: %s: %s", profile_path(options), hint)
        placement = timed
    require_capacity(placement)
    is_given = options.search.memory is not None or not memory_unit(options, placement)
    if is_given and (hint := mixed_memory(placement)):
        log.warning("warning: %s", hint)
    if planned := planned_by(options):
        log.info("%s", planned.describe())
    return placement


def memory_unit(options: Options, placement: Placement) -> str:
    """Return the unit of memory of the chosen placement; empty where only the user knows it."""
    unit_mib = _unit_mib(options, placement)
    return "" if unit_mib is None else "MiB" if unit_mib == 1 else f"units of {unit_mib:g} MiB"


def _unit_mib(options: Options, placement: Placement) -> float | None:
    return 1.0 if kind_of(options.placement) in ("gpt", *PLANNERS) else placement.memory_unit_mib


MIXED_UNITS = 1000
"""A capacity of so many times what a micro-batch needs is likely given in another unit."""


def mixed_memory(placement: Placement) -> str:
    """Return a hint where capacity and blocks seem to have memory in different units; else nothing."""
    held = [
        (capacity, sum(max(block.memory_on(device), 0) for block in placement.on(device)), device)
        for device, capacity in enumerate(placement.free_memory or ())
    ]
    if not held or any(capacity < MIXED_UNITS * most or not most for capacity, most, _ in held):
        return ""
    capacity, most, device = held[0]
    return (
        f"memory[{device}]: {capacity} holds {capacity // most} micro-batches of {most}; if the "
        "capacity is in MiB and the blocks in GiB, or in bytes and MiB, give both in one unit"
    )


def _chosen_placement(options: Options, profile: Profile | None) -> Placement:
    chosen = dict(options.placement)
    if planned := planned_by(options):
        return plan_placement(planned.plan, planned.work, chosen["tick_ms"])
    match kind_of(chosen):
        case "gpt":
            return _gpt(chosen, read_gpu(options.profile.gpu))
        case "stages":
            return place_stages(options).placement
        case "file" | "profiled" | "planned":
            return _from_file(read_fields(chosen, FilePlacementOptions, "placement"))
    num_gpus, data_parallel = chosen.get("num_gpus"), chosen.pop("data_parallel", None)
    placement = _shape(chosen, profile)
    num_gpus = read_num_gpus(num_gpus, "placement.num_gpus", placement.num_devices)
    return with_data_parallel(replace(placement, num_gpus=num_gpus), data_parallel)


def place_stages(options: Options) -> PlacedStages:
    """Return the model of a file of stages on its devices, its backward split where the file tells halves."""
    chosen = read_fields(options.placement, StagesPlacementOptions, "placement")
    require_known("placement.shape", chosen.shape, PIPELINES)
    require(chosen.num_chunks >= 1, "placement.num_chunks", chosen.num_chunks, "at least 1")
    stages = read_stages(require_path("placement.path", chosen.path))
    return place(stages, chosen.shape, stages.knows_halves, chosen.num_chunks)


def _from_file(chosen: FilePlacementOptions) -> Placement:
    path = Path(require_path("placement.path", chosen.path))
    if chosen.kind == "profiled":
        path /= PROFILE_FILES.placement
    elif chosen.kind == "planned":
        path /= PLAN_FILES.placement
    elif path.is_dir():
        raise OptionError(
            f"placement.path: {path} is a directory; give a file, or choose placement=profiled for what "
            "schedsearch profile has measured, placement=planned for what schedsearch plan has planned"
        )
    return with_data_parallel(read_placement(path), chosen.data_parallel)


def _shape(chosen: dict[str, Any], profile: Profile | None) -> Placement:
    name = chosen.pop("kind")
    shape = SHAPES[name]
    tick_ms = chosen.pop("tick_ms", 1.0)
    chosen.pop("num_gpus", None)
    defaults = options_of(shape)
    for key in chosen.keys() - defaults.keys():
        known = [*defaults, "tick_ms", "num_gpus", "data_parallel"]
        raise OptionError(f"placement.{key}: is not an option; {did_you_mean(key, known)}")
    if chosen.get("num_devices") is None:
        chosen.pop("num_devices", None)  # the profile's, or the shape's default
    for key, value in chosen.items():
        where, wanted = f"placement.{key}", type(defaults[key])
        if key.endswith("_time") and isinstance(value, int):
            require(value > 0, where, value, "at least 1 tick", "give a whole number of ticks")
        require(type(value) is wanted, where, value, "true or false" if wanted is bool else "a whole number")
    require(type(tick_ms) in (int, float), "placement.tick_ms", tick_ms, "a number of milliseconds")
    try:
        if profile is not None and (profiled := _num_devices(partial(shape, **chosen), profile)):
            number = chosen.setdefault("num_devices", profiled)
            require(
                number == profiled,
                "placement.num_devices",
                number,
                f"the {profiled} on which {name} has the profile's blocks",
                f"set placement.num_devices={profiled} or give another profile",
            )
        return replace(shape(**chosen), tick_ms=float(tick_ms))
    except PlacementError as error:
        raise OptionError(f"placement.{error}") from None


def _num_devices(shape: Callable[..., Placement], profile: Profile) -> int | None:
    """Return on how many devices a shape has the blocks of a profile and no others; None where on none."""
    for number in range(1, len(profile.points) + 1):
        with suppress(PlacementError):
            if profile.is_of(shape(num_devices=number)):
                return number
    return None


def _gpt(given: dict[str, Any], gpu: Gpu) -> Placement:
    options = read_fields(given, GptPlacementOptions, "placement")
    for name in ("num_gpus", "data_parallel"):
        value = getattr(options, name)
        require(
            isinstance(value, int | None),
            f"placement.{name}",
            value,
            "one number, and the cost model of placement=gpt has all devices share their layers alike",
            "give one number, or a plan (placement=galvatron) or times of your own (placement=file)",
        )
    chosen = asdict(options)
    del chosen["kind"]
    arrangement = chosen.pop("arrangement")
    require_known("placement.arrangement", arrangement, GPT_ARRANGEMENTS)
    config = GptConfig(**{field.name: chosen.pop(field.name) for field in fields(GptConfig)})
    chosen["data_parallel"] = 1 if chosen["data_parallel"] is None else chosen["data_parallel"]
    try:
        return GPT_ARRANGEMENTS[arrangement](config, gpu, **chosen)
    except PlacementError as error:
        raise OptionError(f"placement.{error}") from None
