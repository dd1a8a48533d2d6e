"""Options of a search, and of the commands that only search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placements.meaning import REQUIRED, group, option


@dataclass(frozen=True)
class SearchOptions:
    """The `search` group; see `SearchRequest` and the cache of `schedsearch.searches`."""

    method: str = option(
        "modulo", "modulo | tessel: its own search | time_optimal: the makespan, no repetend"
    )
    num_micro_batches: int = option(
        None, "micro-batches of an iteration; null: the plan's, where there is a plan, else 16"
    )
    memory: int | float | str | list[Any] | None = option(
        None,
        "capacity per device: one number or a list, or with a unit as 24GiB where memory is in MiB; null: "
        "the placement's own",
    )
    micro_batches_per_repetend: int | None = option(
        None, "exact number; null: 1, 2, ... until one meets the bound"
    )
    max_micro_batches_per_repetend: int = option(3, "largest number that is tried")
    objectives: list[Any] = option(
        ["period", "makespan"],
        "what to minimise, in this order: period, span, latency, memory; last, or alone: makespan or "
        "device_span",
    )
    solver: str = option("portfolio", "z3 | cpsat | portfolio: both in turn, with more and more work")
    time_limit_s: float | None = option(
        None, "time limit of the whole search, in s; null: 20, or none where work_limit is given"
    )
    work_limit: float | None = option(
        None,
        "limit of counted work, a unit is about 1 s of one core: equal answers on busy machines too; "
        "null: none",
    )
    seed: int = option(0, "seed of the solvers")
    begin_with: str | None = option(
        None, "schedule.json of this placement to start from: no answer is worse than it; null: none"
    )
    strategies: list[Any] | None = option(
        None,
        "what the period is searched with, in this order; null: hand_made, greedy, device_by_device, "
        "annealing, simulated, patterns, neighbourhoods, queries, states",
    )
    without: list[Any] = option([], "strategies to leave out, as [annealing]")
    cache_dir: str | None = option(
        None, "directory in which results are kept for the same search again; null: none"
    )
    export: str | None = option(
        None, "torch: also writes schedule.csv, as torch.distributed.pipelining loads it"
    )


@dataclass(frozen=True)
class ProfileOptions:
    """The `profile` group; see `placements.profiles.profile.Profile.from_csv`."""

    path: str | None = option(
        None,
        "CSV: block,frequency,time,energy, with config or without, or "
        "stage,instruction,frequency,time,energy",
    )
    gpu: str = option(
        None,
        "GPU: gives the blocking power, and a power model where there is no CSV; null: the plan's, else a100",
    )
    time_scale: float = option(1.0, "multiplies the CSV's times", above=0)
    energy_scale: float = option(1.0, "multiplies the CSV's energies", above=0)
    blocking_power_w: float | dict[Any, Any] | None = option(
        None, "power of a waiting GPU, in W, or by clock, as in {705: 60.0, 1410: 84.0}; null: the GPU's"
    )
    transfer_power_w: float = option(
        0.0,
        "what a GPU draws for a transfer that it sends or receives, in W, beyond computing or waiting",
        min=0,
    )
    clock_latency: str | None = option(
        None, "file of runtime.clock latency: how long changes of clock take; null: the GPU's"
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """The config of `experiments.search`, which those of the three commands below have in common."""

    schedule: str = option(
        "searched", "searched, or a schedule made by hand: gpipe, one_f_one_b, chimera, zb_h1 ..."
    )
    placement: dict[str, Any] = group("gpt")
    search: SearchOptions = group("default")
    profile: ProfileOptions = group("default")


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The config of `experiments.compare`."""

    stages: str = option(
        REQUIRED, "a YAML file: times in ms and memory in MiB of each stage, or of each layer"
    )
    schedules: list[Any] = option(
        ["searched", "one_f_one_b", "interleaved_one_f_one_b", "zb_v", "dual_pipe"],
        "also searched@v_shape and the like",
    )
    num_chunks: int = option(2, "pieces of the model on each device, where a schedule has several")
    search: SearchOptions = group("default")


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The config of `experiments.check`."""

    schedule: str = option(REQUIRED, "path of a schedule.json")
    time_limit_s: float = option(
        60, "time limit of the whole check, in s; what has no answer by then counts as not checked", above=0
    )
