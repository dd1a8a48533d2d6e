"""Options of a placement and its search; one that is null and that a plan decides is the plan's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig

from experiments.config.options import (
    OptionError,
    plain,
    read_fields,
    require_known,
    require_least,
    require_path,
)
from experiments.search.options import Options, ProfileOptions
from experiments.search.placement_options import FilePlacementOptions, PlanPlacementOptions
from experiments.search.plans import BALANCES, PLAN_FILES, PLANNERS, Planned, of_plan, read_plan
from placements.hardware import GPUS, Gpu
from placements.placement_file import read_placement
from placements.plain_data import json_file
from placements.planners.galvatron import recomputed_blocks
from placements.planners.hybrid.plan_file import read_plan_file
from placements.shapes import SHAPES

NUM_MICRO_BATCHES = 16
"""Micro-batches of an iteration, where neither the options nor a plan say it."""

MICRO_BATCH_SIZE = 2
"""Samples of a micro-batch of a run, where neither the options nor a plan say it."""

NUM_LAYERS = 8
"""Layers of the model of a run, where neither the options nor a plan say it."""


AnyOptions = TypeVar("AnyOptions")


def read_options(config: DictConfig, record: type[AnyOptions]) -> AnyOptions:
    """Return the options of a composed config; where one is null that a plan decides, it is the plan's.

    Args:
        config: As Hydra gives it.
        record: The options of the command.

    Raises:
        OptionError: An option is missing, unknown or of the wrong type.
        PlanError: The plan is wrong.
    """
    data = plain(config)
    _fill_in(data)
    return read_fields(data, record, "")


_USUAL_GPU = "a100"
"""GPU that is taken where nothing names one."""

KINDS = (*SHAPES, *PLANNERS, "gpt", "stages", "file", "profiled", "planned")
"""Of placements: each config of the group says which it is."""


def kind_of(placement: dict[str, Any]) -> str:
    """Return the kind of a `placement` group.

    Raises:
        OptionError: It says none, or one that is not known.
    """
    kind = placement.get("kind")
    require_known("placement.kind", kind, KINDS)
    return str(kind)


def read_plan_options(placement: dict[str, Any]) -> PlanPlacementOptions | None:
    """Return the `placement` group of a plan, or None where it is another one.

    Raises:
        OptionError: An option is wrong.
    """
    if kind_of(placement) not in PLANNERS:
        return None
    options = read_fields(placement, PlanPlacementOptions, "placement")
    if options.balance is not None:
        require_known("placement.balance", options.balance, BALANCES)
    return options


def planned_by(options: Options) -> Planned | None:
    """Return the plan that the placement is of, or None where there is none.

    Raises:
        OptionError: An option is wrong.
        PlanError: The plan is wrong, or does not fit the model.
    """
    chosen, number = read_plan_options(options.placement), options.search.num_micro_batches
    if chosen is None:
        return None
    require_least("search.num_micro_batches", number, 1)
    return read_plan(chosen, read_gpu(options.profile.gpu), number)


def read_gpu(name: str, placement: Any = None) -> Gpu:
    """Return the GPU that `profile.gpu` names: by a key, a JSON file, or as a plan's own is called.

    Raises:
        OptionError: It is not known, or its file is wrong.
    """
    if name in GPUS:
        return GPUS[name]
    if name.endswith(".json"):
        with json_file(name, "a file of a GPU", OptionError) as data:
            return data.record(Gpu)
    known = GPUS | {gpu.name: gpu for each in planned_gpus(placement) or () for gpu in each}
    require_known("profile.gpu", name, known)
    return known[name]


def _fill_in(data: dict[Any, Any]) -> None:
    """Put what the plan says, if there is one, in the place of nulls."""
    number, size, recompute = NUM_MICRO_BATCHES, MICRO_BATCH_SIZE, list[str]()
    placement, profile = data.get("placement"), data.get("profile")
    if isinstance(profile, dict) and profile.get("gpu", "") is None:
        profile["gpu"] = _gpu_of(placement)
    if isinstance(placement, dict) and kind_of(placement) == "planned":
        _fill_in_runtime(data, read_fields(placement, FilePlacementOptions, "placement"))
        return
    chosen = read_plan_options(placement) if isinstance(placement, dict) else None
    if chosen is not None:
        plan = read_plan(chosen, read_gpu(read_fields(profile, ProfileOptions, "profile").gpu)).plan
        number, size = plan.num_micro_batches, plan.micro_batch_size
        recompute = list(recomputed_blocks(plan))
    _replace_nulls(data, number, size, recompute)


def _replace_nulls(data: dict[Any, Any], number: int, size: int, recompute: list[str]) -> None:
    for group, name, value in (
        ("search", "num_micro_batches", number),
        ("runtime", "micro_batch_size", size),
        ("runtime", "recompute", recompute),
    ):
        options = data.get(group)
        if isinstance(options, dict) and options.get(name, value) is None:
            options[name] = value


def planned_gpus(placement: Any) -> list[Counter[Gpu]] | None:
    """Return the GPUs of each device that a plan of experiments.plan is for; None of another placement.

    Raises:
        PlanError: The plan cannot be read, or is wrong.
    """
    if not isinstance(placement, dict) or kind_of(placement) != "planned":
        return None
    path = Path(require_path("placement.path", placement.get("path")))
    return read_plan_file(path / PLAN_FILES.plan).stage_gpus


def _gpu_of(placement: Any) -> str:
    """Return the name of the GPU that a plan is for, of several kinds the slowest; else the usual one."""
    gpus = planned_gpus(placement)
    if gpus is None:
        return _USUAL_GPU
    slowest = min((gpu for each in gpus for gpu in each), key=lambda gpu: gpu.peak_tflops)
    return next((name for name, gpu in GPUS.items() if gpu == slowest), slowest.name)


def _fill_in_runtime(data: dict[Any, Any], chosen: FilePlacementOptions) -> None:
    """Put what a plan of experiments.plan says in the place of nulls.

    Raises:
        PlanError: The plan cannot be read, or is wrong.
    """
    folder = Path(require_path("placement.path", chosen.path))
    found = of_plan(read_plan_file(folder / PLAN_FILES.plan), read_placement(folder / PLAN_FILES.placement))
    _replace_nulls(data, found.num_micro_batches, found.micro_batch_size, list(found.recompute))
    runtime = data.get("runtime")
    if isinstance(runtime, dict) and runtime.get("layers_per_block") is None:
        runtime["layers_per_block"] = found.shared_layers(runtime.get("num_layers"))
