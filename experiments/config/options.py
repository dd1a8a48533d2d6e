"""The options of a config as typed records; a wrong one is rejected by name, with the remedy, in one line."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeVar, get_args, get_origin

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from experiments.config.plans import BALANCES, PLANNERS, read_plan
from placements.hardware import GPUS, Gpu
from placements.planners.galvatron import recomputed_blocks


class OptionError(ValueError):
    """An option of the config is wrong; the message names it and the remedy in one line."""


@dataclass(frozen=True)
class GptPlacementOptions:
    """The `placement` group of a GPT; see `placements.models.gpt`."""

    arrangement: str
    num_devices: int
    num_layers: int
    hidden_size: int
    num_heads: int
    vocab_size: int
    sequence_length: int
    micro_batch_size: int
    recompute: bool
    flash_attention: bool
    model_flops_utilisation: float
    output_layer_utilisation: float
    memory_efficiency: float
    link_efficiency: float
    reserve_gib: float
    tick_ms: float | None
    num_gpus: int | list[Any]
    data_parallel: int | dict[Any, Any] | None


@dataclass(frozen=True)
class PlanPlacementOptions:
    """The `placement` group of a planner's plan; see `placements.planners` and `placements.models.rates`."""

    planner: str
    path: str
    balance: str | None
    world_size: int | None
    num_layers: int | None
    hidden_size: int
    num_heads: int
    vocab_size: int
    sequence_length: int
    flash_attention: bool
    model_flops_utilisation: float
    output_layer_utilisation: float
    memory_efficiency: float
    link_efficiency: float
    overlap_slowdown: float
    reserve_gib: float
    tick_ms: float | None


@dataclass(frozen=True)
class SearchOptions:
    """The `search` group; see `schedsearch.methods.SearchRequest` and `schedsearch.cache`."""

    method: str
    num_micro_batches: int
    memory: int | float | list[Any] | None
    micro_batches_per_repetend: int | None
    most_micro_batches_per_repetend: int
    objectives: list[Any]
    solver: str
    time_limit_s: float
    polish_time_limit_s: float
    seed: int
    cache_dir: str | None
    export: str | None


@dataclass(frozen=True)
class ProfileOptions:
    """The `profile` group; see `placements.profile.Profile.from_csv`."""

    path: str | None
    gpu: str
    time_scale: float
    energy_scale: float
    blocking_power_w: float | dict[Any, Any] | None
    clock_latency: str | None


@dataclass(frozen=True)
class ProfilingOptions:
    """The `profiling` group, of `experiments.profile` alone; see `runtime.profiling.profiler.Sweep`.

    Attributes:
        in_pipeline: Whether the blocks are measured where the schedule runs them, beside the others.
    """

    iterations: int
    least_ms: float
    rises: int
    blocking_clocks: int
    in_pipeline: bool


@dataclass(frozen=True)
class EnergyOptions:
    """The `energy` group; see `schedsearch.energy`."""

    deadline_ms: float | None
    slowdown: float | None
    num_plans: int
    method: str
    curve: str
    unit_ms: float
    polish: str | None
    polish_time_limit_s: float
    baselines: list[Any]
    orders: int
    orders_time_limit_s: float
    export: str | None
    periodic: bool
    dwell_ms: float | str
    switch_ms: float | str
    back_to_back: bool
    power_cap_w: float | None
    device_power_cap_w: float | None
    signal: str | None
    iterations: int | None
    job_deadline_s: float | None


@dataclass(frozen=True)
class RuntimeOptions:
    """The `runtime` group; see `runtime.models` and `runtime.launch`."""

    model: str
    num_layers: int | None
    layers_per_block: dict[Any, Any] | None
    hidden_size: int
    num_heads: int
    sequence_length: int
    micro_batch_size: int
    vocab_size: int
    dtype: str
    learning_rate: float
    seed: int
    text: str | None
    path: str | None
    iterations: int
    timeout_s: float
    simulated_gpus: bool
    optimizer: str
    weight_decay: float
    recompute: str | list[Any]
    launcher: str
    device: str | None
    blocking: bool
    num_micro_batches: int | None
    receive_ahead: int
    receive_memory: int | None
    checkpoint_every: int
    keep_checkpoints: int
    resume: str | None
    trace: bool


@dataclass(frozen=True)
class Options:
    """A whole config.

    Attributes:
        placement: The chosen placement group, read by `experiments.steps.pipeline_steps.build_placement`.
        schedule: ``searched``, or a key of `schedsearch.baselines.HAND_MADE`.
        search: How to search.
        profile: What blocks cost.
        profiling: How to measure it.
        energy: What the iteration may take.
        runtime: What to run.
    """

    placement: dict[str, Any]
    schedule: str
    search: SearchOptions
    profile: ProfileOptions
    profiling: ProfilingOptions
    energy: EnergyOptions
    runtime: RuntimeOptions


@dataclass(frozen=True)
class CheckOptions:
    """The config of `experiments.check`.

    Attributes:
        schedule: Path of a ``schedule.json``.
        time_limit_s: Seconds for all refutations.
    """

    schedule: str
    time_limit_s: float


@dataclass(frozen=True)
class SweepOptions:
    """The config of `experiments.bubble_by_in_flight`, and what both figures of the bubble have in common."""

    shapes: list[Any]
    num_devices: int
    most_in_flight: int | None
    tessel_time_limit_s: float
    time_limit_s: float
    solver: str
    seed: int
    num_processes: int | None
    cache_dir: str | None


@dataclass(frozen=True)
class MemorySweepOptions(SweepOptions):
    """The config of `experiments.bubble_by_memory`."""

    memories: list[Any] | None
    most_micro_batches_per_repetend: int


NUM_MICRO_BATCHES = 16
"""Of an iteration, where neither the options nor a plan say it."""

MICRO_BATCH_SIZE = 2
"""Samples of a micro-batch of a run, likewise."""

NUM_LAYERS = 8
"""Of the model of a run, likewise."""


@dataclass(frozen=True)
class TransferSweepOptions:
    """The config of `experiments.time_by_transfer`."""

    placements: list[Any]
    num_devices: int
    num_micro_batches: int
    memory: int | None
    transfers: list[Any]
    receive_ahead: int
    gpu: str
    time_limit_s: float
    solver: str
    seed: int
    num_processes: int | None


def read_options(config: DictConfig) -> Options:
    """Return the options of a composed config; where one is null that a plan decides, it is the plan's.

    Raises:
        OptionError: An option is missing, unknown or of the wrong type.
        PlanError: The plan is wrong.
    """
    data = _plain(config)
    _fill_in(data)
    return read_fields(data, Options, "")


def read_plan_options(placement: dict[str, Any]) -> PlanPlacementOptions | None:
    """Return the `placement` group of a plan, or None where it is another one.

    Raises:
        OptionError: An option is wrong.
    """
    if "planner" not in placement:
        return None
    options = read_fields(placement, PlanPlacementOptions, "placement")
    for name, known in (("planner", PLANNERS), ("balance", BALANCES)):
        value = getattr(options, name)
        if value not in known and value is not None:
            raise OptionError(f"placement.{name}: {value!r} is not known; {did_you_mean(value, known)}")
    return options


def read_gpu(name: str) -> Gpu:
    """Return the GPU that `profile.gpu` names.

    Raises:
        OptionError: It is not known.
    """
    if name not in GPUS:
        raise OptionError(f"profile.gpu: {name!r} is not known; {did_you_mean(name, GPUS)}")
    return GPUS[name]


def _fill_in(data: dict[Any, Any]) -> None:
    """Put what the plan says, if there is one, in the place of nulls."""
    number, size, recompute = NUM_MICRO_BATCHES, MICRO_BATCH_SIZE, list[str]()
    placement, profile = data.get("placement"), data.get("profile")
    chosen = read_plan_options(placement) if isinstance(placement, dict) else None
    if chosen is not None:
        plan = read_plan(chosen, read_gpu(read_fields(profile, ProfileOptions, "profile").gpu)).plan
        number, size = plan.num_micro_batches, plan.micro_batch_size
        recompute = list(recomputed_blocks(plan))
    for group, name, value in (
        ("search", "num_micro_batches", number),
        ("runtime", "micro_batch_size", size),
        ("runtime", "recompute", recompute),
    ):
        options = data.get(group)
        if isinstance(options, dict) and options.get(name, value) is None:
            options[name] = value


Record = TypeVar("Record")


def read_record(config: DictConfig, record: type[Record]) -> Record:
    """Return a composed config as a record.

    Raises:
        OptionError: An option is missing, unknown or of the wrong type.
    """
    return read_fields(_plain(config), record, "")


def _plain(config: DictConfig) -> dict[Any, Any]:
    try:
        data = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise OptionError(f"{error.full_key}: has no value; give one, as in {error.full_key}=VALUE") from None
    except OmegaConfBaseException as error:
        raise OptionError(f"config: {str(error).splitlines()[0]}") from None
    assert isinstance(data, dict), "a Hydra config is a mapping"
    return data


def read_fields(data: Any, record: type[Record], where: str) -> Record:
    """Build a dataclass from a mapping, checking the names and the types of its fields.

    Raises:
        OptionError: A field is missing, unknown or of the wrong type; `where` is its place in the config.
    """
    if not isinstance(data, dict):
        raise OptionError(f"{where}: {data!r} is not a group of options")
    hints = typing.get_type_hints(record)
    names = [field.name for field in fields(record)]  # type: ignore[arg-type]
    for name in data:
        if name not in names:
            raise OptionError(f"{_join(where, name)}: is not an option; {did_you_mean(str(name), names)}")
    for name in names:
        if name not in data:
            raise OptionError(
                f"{_join(where, name)}: has no value; give one, as in {_join(where, name)}=VALUE"
            )
    return record(**{name: _read_value(data[name], hints[name], _join(where, name)) for name in names})


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a remedy for a name that is not known: the nearest that is, or all."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"the options are {', '.join(known)}"


def _read_value(value: Any, wanted: Any, where: str) -> Any:
    kinds = get_args(wanted) if get_origin(wanted) in (types.UnionType, typing.Union) else (wanted,)
    plain = [get_origin(kind) or kind for kind in kinds]
    if isinstance(wanted, type) and hasattr(wanted, "__dataclass_fields__"):
        return read_fields(value, wanted, where)
    if value is None and types.NoneType in plain:
        return None
    if isinstance(value, bool) and bool not in plain:
        raise OptionError(f"{where}: {value!r} is not {_in_words(plain)}")
    if isinstance(value, int) and float in plain and int not in plain:
        return float(value)
    for kind in plain:
        if kind is not types.NoneType and isinstance(value, kind):
            return value
    raise OptionError(f"{where}: {value!r} is not {_in_words(plain)}")


def _in_words(kinds: list[Any]) -> str:
    words = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
        dict: "a mapping",
        types.NoneType: "null",
    }
    return " or ".join(words.get(kind, f"a {kind.__name__}") for kind in kinds)


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else str(name)
