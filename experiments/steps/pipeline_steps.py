"""The steps that the commands share: from options to a placement, a profile and a schedule."""

from __future__ import annotations

import inspect
import json
import logging
import math
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config.command import Failed, Interrupted
from experiments.config.data_parallel import with_data_parallel
from experiments.config.options import OptionError, did_you_mean, read_fields, read_gpu, read_plan_options
from experiments.config.plans import Planned, read_plan
from experiments.config.progress import SearchBar
from experiments.config.records import GptPlacementOptions, Options
from placements import BlockingPower, Placement, PlacementError, Profile, ProfileError
from placements.hardware import Gpu, modelled_profile
from placements.models.gpt import GptConfig, gpt_compute_shares, gpt_m_shape, gpt_v_shape
from placements.placement_file import read_capacity, read_num_gpus, read_placement
from placements.planners.galvatron import plan_compute_shares, plan_placement
from placements.profile import checked_blocking_power
from placements.shapes import SHAPES
from schedsearch.baselines import HAND_MADE
from schedsearch.bounds.memory_need import require_capacity
from schedsearch.cache import cached_search
from schedsearch.methods import SearchRequest
from schedsearch.modulo.result import SearchResult, Status
from schedsearch.schedule import Schedule
from schedsearch.validate import InvalidScheduleError, validate

log = logging.getLogger(__name__)


class _ProfileFiles(NamedTuple):
    """What `experiments.profile` leaves in its output directory."""

    csv: str = "profile.csv"
    facts: str = "profile.json"
    placement: str = "placement.yaml"


PROFILE_FILES = _ProfileFiles()
"""Names of the files of `experiments.profile`."""

GPT_ARRANGEMENTS = {"m_shape": gpt_m_shape, "v_shape": gpt_v_shape}
"""The placements of a GPT by the name that the command line uses."""


def read_profile(options: Options) -> Profile | None:
    """Read the profile CSV that the options name; None where they name none."""
    chosen = options.profile
    gpu = _gpu(options)
    for name in ("time_scale", "energy_scale"):
        if not 0 < getattr(chosen, name) < math.inf:
            raise OptionError(f"profile.{name}: {getattr(chosen, name):g} is not a factor above 0; give one")
    power = _blocking_power(options)
    path = None if chosen.path is None else _path(chosen.path, "profile.path")
    if path is None and (measured := _measured(options)) is not None:
        path = str(measured / PROFILE_FILES.csv)
        power = _facts(measured)["blocking_power_w"] if power is None else power
    if path is None:
        return None
    return Profile.from_csv(
        path,
        device=chosen.gpu,
        blocking_power_w=gpu.blocking_power_w if power is None else power,
        time_scale=chosen.time_scale,
        energy_scale=chosen.energy_scale,
    )


def _measured(options: Options) -> Path | None:
    """Return the output directory of `experiments.profile` that the options name, if it has energies."""
    directory = options.placement.get("path")
    if not isinstance(directory, str) or not directory or not Path(directory).is_dir():
        return None
    return Path(directory) if _facts(Path(directory))["energy"] else None


def _facts(directory: Path) -> dict[str, Any]:
    """Return what `experiments.profile` says of its measurement.

    Raises:
        OptionError: The directory is not its output.
    """
    path = directory / PROFILE_FILES.facts
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(facts["energy"], bool):
            return {"energy": facts["energy"], "blocking_power_w": _power_of(facts["blocking_power_w"])}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise OptionError(
        f"placement.path: {directory} has no {path.name} of experiments.profile; give its output directory"
    )


def _power_of(plain: Any) -> BlockingPower | None:
    """Return the blocking power of ``profile.json``: a number, or W by MHz.

    Raises:
        ValueError: It is neither.
    """
    if plain is None:
        return None
    if isinstance(plain, dict):
        return checked_blocking_power(tuple((int(clock), float(watts)) for clock, watts in plain.items()))
    return checked_blocking_power(float(plain))


def build_placement(options: Options, profile: Profile | None) -> Placement:
    """Return the placement that the options choose, with their memory, and block times of the profile."""
    placement = _chosen_placement(options, profile)
    if options.search.memory is not None:
        capacity = read_capacity(options.search.memory, "search.memory", placement.num_devices)
        if capacity is not None and min(capacity) < 0:
            raise OptionError(f"search.memory: {min(capacity)} is negative; give a capacity of 0 or more")
        placement = replace(placement, memory=capacity)
    if profile is not None:
        try:
            placement = profile.times_for(placement)
        except ProfileError as error:
            raise OptionError(f"{options.profile.path}: {error}") from None
    require_capacity(placement)
    if planned := planned_by(options):
        log.info("%s", planned.describe())
    return placement


def planned_by(options: Options) -> Planned | None:
    """Return the plan that the placement is of, or None where there is none.

    Raises:
        OptionError: An option is wrong.
        PlanError: The plan is wrong, or does not fit the model.
    """
    chosen, number = read_plan_options(options.placement), options.search.num_micro_batches
    if chosen is None:
        return None
    if number < 1:
        raise OptionError(f"search.num_micro_batches: {number} is not at least 1")
    return read_plan(chosen, _gpu(options), number)


def complete_profile(options: Options, placement: Placement, profile: Profile | None) -> Profile:
    """Return the measured profile, or where there is none, one from the GPU's power model."""
    if profile is not None:
        return profile
    gpu = _gpu(options)
    if planned := planned_by(options):
        modelled = modelled_profile(placement, gpu, plan_compute_shares(planned.plan, planned.work))
    elif "shape" in options.placement or "path" in options.placement:
        modelled = modelled_profile(placement, gpu)
    else:
        modelled = modelled_profile(placement, gpu, gpt_compute_shares(placement))
    power = _blocking_power(options)
    return modelled if power is None else replace(modelled, blocking_power_w=power)


def _blocking_power(options: Options) -> BlockingPower | None:
    """Return the blocking power that the options give: a number, or points by clock; None where they do not.

    Raises:
        OptionError: It is no power, or a clock of it is none.
    """
    chosen, where = options.profile.blocking_power_w, "profile.blocking_power_w"
    if not isinstance(chosen, dict):
        if chosen is not None and not 0 <= chosen < math.inf:
            raise OptionError(f"{where}: {chosen:g} is not a power; give 0 W or more")
        return chosen
    if not chosen:
        raise OptionError(f"{where}: is an empty mapping; give W by MHz as in {{705: 60.0, 1410: 84.0}}")
    for clock, watts in chosen.items():
        if type(clock) is not int or clock < 1:
            raise OptionError(f"{where}: {clock!r} is not a clock; give whole MHz above 0, without quotes")
        if isinstance(watts, bool) or not isinstance(watts, (int, float)) or not 0 <= watts < math.inf:
            raise OptionError(f"{where}: {watts!r} at {clock} MHz is not a power; give 0 W or more")
    return tuple(sorted((clock, float(watts)) for clock, watts in chosen.items()))


def memory_unit(options: Options) -> str:
    """Return the unit of memory of the chosen placement; empty where only the user knows it."""
    return "MiB" if {"arrangement", "planner"} & options.placement.keys() else ""


def find_schedule(options: Options, placement: Placement) -> tuple[Schedule, SearchResult | None]:
    """Search a schedule, or make the hand-made one that the options name; both validated.

    Returns:
        The schedule; the search's result, or None for a hand-made one.
    """
    number = options.search.num_micro_batches
    if options.schedule == "searched":
        request = search_request(options, placement)
        directory = cache_directory(options.search.cache_dir, "search.cache_dir")
        bar = SearchBar()
        with bar:
            result, was_there = cached_search(directory, request, bar)
        if was_there:
            log.info("search: taken from the cache in %s; its seconds are those it took then", directory)
        return _require_schedule(result), result
    if options.schedule not in HAND_MADE:
        raise OptionError(
            f"schedule: {options.schedule!r} is not known; "
            f"{did_you_mean(options.schedule, ['searched', *HAND_MADE])}"
        )
    if number < 1:
        raise OptionError(f"search.num_micro_batches: {number} is not at least 1")
    schedule = HAND_MADE[options.schedule](placement, number)
    try:
        return validate(schedule), None
    except InvalidScheduleError as error:
        reason = str(error).splitlines()[0]
        raise OptionError(
            f"schedule: {options.schedule} does not fit ({reason}); "
            "raise search.memory or use schedule=searched"
        ) from None


def search_request(options: Options, placement: Placement) -> SearchRequest:
    """Return what the options ask of a search."""
    chosen = options.search
    return SearchRequest(
        placement,
        chosen.num_micro_batches,
        method=chosen.method,
        micro_batches_per_repetend=chosen.micro_batches_per_repetend,
        most_micro_batches_per_repetend=chosen.most_micro_batches_per_repetend,
        objectives=tuple(chosen.objectives),
        solver=chosen.solver,
        time_limit_s=chosen.time_limit_s,
        polish_time_limit_s=chosen.polish_time_limit_s,
        seed=chosen.seed,
    )


def cache_directory(value: str | None, where: str = "cache_dir") -> Path | None:
    """Return the directory that an option names, made if it is not there; None for none.

    Raises:
        OptionError: It is not a path, or the directory cannot be made.
    """
    if value is None:
        return None
    directory = Path(_path(value, where))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"{where}: {directory} cannot be made ({error.strerror}); give another directory"
        ) from None
    return directory


def _require_schedule(result: SearchResult) -> Schedule:
    """Return the schedule that a search found.

    Raises:
        ValueError: There is none.
        Failed: None was found in time.
        Interrupted: None was found before the interruption.
    """
    if result.schedule is not None:
        return result.schedule
    if result.interrupted:
        raise Interrupted("interrupted before a schedule was found")
    if result.status is Status.UNKNOWN:
        raise Failed(result.reason)
    raise ValueError(f"{result.status}: {result.reason}")


def _chosen_placement(options: Options, profile: Profile | None) -> Placement:
    chosen = dict(options.placement)
    if planned := planned_by(options):
        return plan_placement(planned.plan, planned.work, chosen["tick_ms"])
    if "path" in chosen:
        _only(chosen, ["path", "data_parallel"])
        path = Path(_path(chosen["path"], "placement.path"))
        placement = read_placement(path / PROFILE_FILES.placement if path.is_dir() else path)
        return with_data_parallel(placement, chosen.get("data_parallel"))
    num_gpus, data_parallel = chosen.get("num_gpus"), chosen.pop("data_parallel", None)
    placement = _shape(chosen, profile) if "shape" in chosen else _gpt(chosen, _gpu(options))
    num_gpus = read_num_gpus(num_gpus, "placement.num_gpus", placement.num_devices)
    return with_data_parallel(replace(placement, num_gpus=num_gpus), data_parallel)


def _shape(chosen: dict[str, Any], profile: Profile | None) -> Placement:
    name = chosen.pop("shape")
    if name not in SHAPES:
        raise OptionError(f"placement.shape: {name!r} is not a shape; {did_you_mean(str(name), SHAPES)}")
    shape = SHAPES[name]
    tick_ms = chosen.pop("tick_ms", 1.0)
    chosen.pop("num_gpus", None)
    defaults = {key: known.default for key, known in inspect.signature(shape).parameters.items()}
    _only(chosen, list(defaults), "tick_ms", "num_gpus", "data_parallel")
    if chosen.get("num_devices") is None:
        chosen["num_devices"] = _num_devices(profile, chosen.get("num_chunks", defaults.get("num_chunks", 1)))
    for key, value in chosen.items():
        if key.endswith("_time") and isinstance(value, int) and value < 1:
            raise OptionError(
                f"placement.{key}: {value} is not at least 1 tick; give a whole number of ticks"
            )
        wanted = type(defaults[key])
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            kind = "true or false" if wanted is bool else "a whole number"
            raise OptionError(f"placement.{key}: {value!r} is not {kind}")
    if isinstance(tick_ms, bool) or not isinstance(tick_ms, (int, float)):
        raise OptionError(f"placement.tick_ms: {tick_ms!r} is not a number of milliseconds")
    try:
        return replace(shape(**chosen), tick_ms=float(tick_ms))
    except PlacementError as error:
        raise OptionError(f"placement.{error}") from None


def _num_devices(profile: Profile | None, num_chunks: object) -> int:
    """Return as many devices as the profile's stages need, or 4 where it does not tell."""
    if profile is None or profile.num_stages is None:
        return 4
    if type(num_chunks) is int and num_chunks > 0:
        return profile.num_stages // num_chunks or 1
    return profile.num_stages


def _gpt(chosen: dict[str, Any], gpu: Gpu) -> Placement:
    chosen = asdict(read_fields({"data_parallel": None, **chosen}, GptPlacementOptions, "placement"))
    del chosen["num_gpus"], chosen["data_parallel"]
    arrangement = chosen.pop("arrangement")
    if arrangement not in GPT_ARRANGEMENTS:
        raise OptionError(
            f"placement.arrangement: {arrangement!r} is not known; "
            f"{did_you_mean(arrangement, GPT_ARRANGEMENTS)}"
        )
    config = GptConfig(**{field.name: chosen.pop(field.name) for field in fields(GptConfig)})
    return GPT_ARRANGEMENTS[arrangement](config, gpu, **chosen)


def _path(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise OptionError(f"{where}: {value!r} is not a path; give that of a file")
    return value


def _only(chosen: dict[str, Any], known: list[str], *more: str) -> None:
    for key in chosen:
        if key not in known and key not in more:
            raise OptionError(f"placement.{key}: is not an option; {did_you_mean(key, [*known, *more])}")


def _gpu(options: Options) -> Gpu:
    return read_gpu(options.profile.gpu)
