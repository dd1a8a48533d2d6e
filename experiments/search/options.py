"""Options of a search, with which the options of larger commands begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from omegaconf import DictConfig

from experiments.config.declaring import Command
from experiments.config.options import OptionError, plain, read_fields, require, require_known
from experiments.search.kinds.kind import PlacementKind, PlannedRun
from experiments.search.kinds.kinds import PLACEMENTS, read_placement_kind
from placements import BlockingPower
from placements.forms.meaning import Meaning, Verbatim, group, option
from placements.forms.reading import in_mib, json_file
from placements.gpus import GPUS, gpu_table
from placements.hardware import Gpu
from schedsearch.core.problem import seconds_of


@dataclass(frozen=True)
class SearchOptions:
    """The `search` group; see `Problem`."""

    method: str = option(
        "modulo",
        "modulo | tessel: its own search | time_optimal: the makespan, no repetend",
        choices=("modulo", "tessel", "time_optimal"),
    )
    num_micro_batches: int = option(None, "micro-batches of an iteration; null: the plan's, else 16", min=1)
    memory: int | float | str | tuple[Any, ...] | None = option(
        None, "capacity per device: one or a list, or as 24GiB where memory is in MiB; null: the placement's"
    )
    micro_batches_per_repetend: int | None = option(None, "null: 1, 2, ... until one meets the bound")
    max_micro_batches_per_repetend: int = option(3, "largest number that is tried")
    objectives: tuple[str, ...] = option(
        ("period", "makespan"),
        "minimised in this order: period, span, latency, memory; last, or alone: makespan or device_span",
    )
    solver: str = option(
        "portfolio",
        "z3 | cpsat | portfolio: both in turn, with more and more work",
        choices=("portfolio", "z3", "cpsat"),
    )
    time_limit_s: float | None = option(
        None, "limit of all searches, in s; null: 20, or none where work_limit is given", above=0
    )
    work_limit: float | None = option(
        None, "limit of counted work, a unit is about 1 s: equal answers on all machines; null: none", above=0
    )
    seed: int = option(0, "seed of the solvers")
    begin_with: Verbatim | None = option(None, "schedule.json to start from: no answer is worse; null: none")
    strategies: tuple[str, ...] | None = option(
        None,
        "used in this order; null: hand_made, greedy, annealing, modes, queries, states, and for the whole "
        "schedule turns, simulated, neighbourhoods",
    )
    without: tuple[str, ...] = option((), "strategies to leave out, as [annealing]")
    workers: int = option(1, "processes that search side by side, each with its own seed", min=1)
    micro_batches: Verbatim | None = option(
        None,
        "CSV of micro-batches that differ: micro_batch,block,time_ms and optionally memory_mib, or "
        "micro_batch,tokens; null: all are alike",
    )
    length_rules: Verbatim | None = option(
        None, "for micro_batch,tokens: CSV of costs by length, block,power,time_ms[,memory_mib]; null: none"
    )
    replicas: int | None = option(
        None, "data-parallel replicas, whose micro-batches are searched too; null: one", min=1
    )
    max_micro_batches: int | None = option(None, "most micro-batches of a replica; null: no limit", min=1)
    scenarios: Verbatim | tuple[Any, ...] | None = option(
        None, "YAML, or as [{jitter: 0.1}, {slow_devices: {3: 1.2}}]: one order for all; null: none"
    )
    scenario_quantile: float | None = option(
        None, "share of simulated iterations to make short, as 0.95; null: their mean", above=0, max=1
    )
    export: str | tuple[str, ...] | None = option(
        None,
        "also, one or a list as [torch,megatron]; torch: schedule.csv for torch.distributed.pipelining | "
        "streams: streams.csv, by stream | perfetto: trace.json for ui.perfetto.dev | "
        "megatron, flagscale, primus, torchtitan: layers and modes",
        choices=("torch", "streams", "perfetto", "megatron", "flagscale", "primus", "torchtitan"),
    )
    layout: Verbatim | None = option(
        None, "layers of each stage for trainers, as Et*4|t*4|t*4L; null: the placement's layers"
    )

    @property
    def exports(self) -> tuple[str, ...]:
        """Names of the further files."""
        return (self.export,) if isinstance(self.export, str) else self.export or ()

    @property
    def limit_s(self) -> float:
        """Limit of all searches, in s; infinite where only the work is limited."""
        return seconds_of(self.time_limit_s, self.work_limit)

    def __post_init__(self) -> None:
        """Check memory that is text: a number with a unit of bytes."""
        for memory in self.memory if isinstance(self.memory, tuple) else (self.memory,):
            if isinstance(memory, str) and in_mib(memory) == memory:
                remedy = "give whole units, or memory as in 24GiB"
                raise OptionError(f"search.memory: {memory!r} is not a number of 0 or more; {remedy}")


@dataclass(frozen=True)
class ProfileOptions:
    """The `profile` group; see `placements.profiles.profile.Profile.from_csv`."""

    path: Verbatim | None = option(
        None, "CSV: block,frequency,time,energy[,config] or stage,instruction,frequency,time,energy"
    )
    gpu: Verbatim = option(
        None, "GPU, also your own as mine.csv:NAME, for power; null: the plan's, else a100"
    )
    time_scale: float = option(1.0, "multiplies the CSV's times", above=0)
    energy_scale: float = option(1.0, "multiplies the CSV's energies", above=0)
    blocking_power_w: float | Mapping[Annotated[int, Meaning("clock", min=1)], float] | None = option(
        None, "W of a waiting GPU, or by clock as in {705: 60.0, 1410: 84.0}; null: the GPU's", min=0
    )
    clock_latency: Verbatim | None = option(
        None, "file of runtime.clock latency: how long changes of clock take; null: the GPU's"
    )

    @property
    def blocking_power(self) -> BlockingPower | None:
        """The blocking power that is given: a number, or points by clock; None for the GPU's."""
        given = self.blocking_power_w
        if not isinstance(given, Mapping):
            return given
        wanted = "W by MHz", "give some as in {705: 60.0, 1410: 84.0}"
        require(bool(given), "profile.blocking_power_w", {}, *wanted)
        return tuple(sorted(given.items()))


@dataclass(frozen=True, kw_only=True)
class SearchCommandOptions:
    """The config of `experiments.search`, with which the configs of three other commands begin."""

    schedule: str = option(
        "searched", "searched, or a schedule made by hand: gpipe, one_f_one_b, chimera, zb_h1 ..."
    )
    placement: PlacementKind = group("gpt", PLACEMENTS, read_placement_kind, "The placement")
    search: SearchOptions = group(headline="The search")
    profile: ProfileOptions = group(headline="What blocks cost")


NUM_MICRO_BATCHES = 16
"""Micro-batches of an iteration, where neither the options nor a plan say it."""

MICRO_BATCH_SIZE = 2
"""Samples of a micro-batch of a run, where neither the options nor a plan say it."""

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


def _fill_in(data: dict[Any, Any]) -> None:
    """Put the plan's values, if there is a plan, in the place of nulls."""
    usual, layers = PlannedRun(NUM_MICRO_BATCHES, MICRO_BATCH_SIZE, (), {}), None
    groups: dict[str, Any] = {name: values for name, values in data.items() if isinstance(values, dict)}
    if "placement" in data:
        kind, profile = read_placement_kind(data["placement"]), groups["profile"]
        if profile.get("gpu", "") is None:
            profile["gpu"] = _plan_gpu(kind)
        if run := kind.run(read_gpu(read_fields(profile, ProfileOptions, "profile").gpu, kind)):
            usual, layers = run, run.shared_layers(groups.get("runtime", {}).get("num_layers"))
    number, table = usual.num_micro_batches, groups.get("search", {}).get("micro_batches")
    if isinstance(table, str):
        from schedsearch.unequal.micro_batches import count_micro_batches

        number = count_micro_batches(table)
    for group_name, name, value in (
        ("search", "num_micro_batches", number),
        ("runtime", "micro_batch_size", usual.micro_batch_size),
        ("runtime", "recompute", list(usual.recompute)),
        ("runtime", "layers_per_block", layers),
    ):
        if group_name in groups and groups[group_name].get(name, value) is None:
            groups[group_name][name] = value


def read_gpu(name: str, kind: PlacementKind) -> Gpu:
    """Return the GPU that `profile.gpu` names: by a key, also of a table, a JSON file, or as a plan's own."""
    if name.lower().endswith(".json"):
        with json_file(name, "a file of a GPU", OptionError) as data:
            return data.record(Gpu)
    known, key = gpu_table(name)
    known = {gpu.name: gpu for gpus in kind.device_gpus or () for gpu in gpus} | known
    require_known("profile.gpu", key, known)
    return known[key]


def _plan_gpu(kind: PlacementKind) -> str:
    """Return the name of the GPU that a plan is for, of several kinds the slowest; without a plan an A100."""
    gpus = kind.device_gpus
    if gpus is None:
        return "a100"
    slowest = min((gpu for device_gpus in gpus for gpu in device_gpus), key=lambda gpu: gpu.peak_tflops)
    return next((name for name, gpu in GPUS.items() if gpu == slowest), slowest.name)


PRESETS: Mapping[str, Mapping[str, Any]] = {
    # No bubble in the steady state with three quarters of 1F1B's memory: each backward block in two, and each
    # of the 4 devices with two stages, as in ZB-V. 1F1B holds 8 activations of such stages there.
    "zero_bubble": {
        "defaults": [{"override /placement": "wave_shape"}],
        "placement": {"split_backward": True},
        "search": {"memory": 6, "num_micro_batches": 12},
    }
}
"""The choices of ``experiment`` in the commands that search: each sets many options at once."""

OF_ONE_PIPELINE = ("search.replicas", "search.max_micro_batches")
"""Options of a comparison, which commands refuse that look at one pipeline alone."""

COMMAND = Command(
    "search",
    SearchCommandOptions,
    task="experiments.search.task",
    read=read_options,
    first="placement placement.path placement.num_devices schedule search.num_micro_batches "
    "search.memory search.time_limit_s",
    presets=PRESETS,
    objective="makespan_ms",
    refused=OF_ONE_PIPELINE,
)
