"""Each command: what it does, which options it has, and what Hydra is told of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, NamedTuple

from experiments.config.records.cluster import (
    ClusterCommandOptions,
    ClusterStudyOptions,
    EstimatorOptions,
    FailureOptions,
    FileTraceOptions,
    GeneratedTraceOptions,
    GpuClusterOptions,
    PolicyOptions,
    PricesOptions,
)
from experiments.config.records.energy import EnergyOptions, FrontierCommandOptions
from experiments.config.records.figures import (
    MemorySweepOptions,
    ReproduceOptions,
    SweepOptions,
    TransferSweepOptions,
)
from experiments.config.records.placement import (
    OF_CHUNKS,
    SHAPE_MEANINGS,
    FilePlacementOptions,
    GptPlacementOptions,
    PlannedPlacementOptions,
    PlanPlacementOptions,
    ProfiledPlacementOptions,
    StagesPlacementOptions,
)
from experiments.config.records.plan import PlanCommandOptions, PredictOptions
from experiments.config.records.runtime import (
    ProfileCommandOptions,
    ProfilingOptions,
    RunCommandOptions,
    RuntimeOptions,
)
from experiments.config.records.search import (
    CheckOptions,
    CompareOptions,
    Options,
    ProfileOptions,
    SearchOptions,
)
from placements.meaning import REQUIRED
from placements.shapes import SHAPES, options_of


@dataclass(frozen=True)
class Command:
    """A command that Hydra runs.

    Attributes:
        purpose: The sentence that help says of it.
        record: Its options and groups of options.
        has_presets: Whether ``experiment`` chooses from `PRESETS`.
        hydra: Settings of Hydra's beside those of all commands.
        overrides: Groups of Hydra's, and what is chosen there.
    """

    purpose: str
    record: type
    has_presets: bool = False
    hydra: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)


REPRODUCE = "reproduce"
"""The command of which ``experiment`` chooses an item to reproduce, with the item's own options."""

COMMANDS: Mapping[str, Command] = {
    "search": Command("Search a schedule for a placement, with proofs.", Options, has_presets=True),
    "compare": Command("Put schedules of one model side by side.", CompareOptions),
    "plan": Command("Plan a model on a cluster; rank plans by their schedules.", PlanCommandOptions),
    "frontier": Command(
        "Search a schedule, and choose clocks that save energy.", FrontierCommandOptions, has_presets=True
    ),
    "run": Command(
        "All of it: search, clocks, scripts, a run and a report.", RunCommandOptions, has_presets=True
    ),
    "profile": Command(
        "Measure on this machine what the blocks cost.", ProfileCommandOptions, has_presets=True
    ),
    "check": Command(
        "Check each claim of a schedule file without the search.",
        CheckOptions,
        hydra={"output_subdir": None, "run": {"dir": "."}},  # nothing is written
        overrides={"job_logging": "stdout"},
    ),
    "cluster": Command("Simulate many jobs on GPUs of several types.", ClusterCommandOptions),
    "prices": Command("Show what a job saves by moving among spot prices.", PricesOptions),
    "predict": Command("Predict time and memory of plans that were run.", PredictOptions),
    "cluster_study": Command("Run planned jobs on a cluster that chooses clocks.", ClusterStudyOptions),
    "bubble_by_memory": Command("Draw the bubble by memory (Tessel, Fig. 12).", MemorySweepOptions),
    "bubble_by_in_flight": Command("Draw the bubble by micro-batches in flight (Fig. 11).", SweepOptions),
    "time_by_transfer": Command(
        "Draw iteration time by transfer time (Tessel, Fig. 17).", TransferSweepOptions
    ),
    REPRODUCE: Command(
        "Make tables and figures of papers again, beside theirs.",
        ReproduceOptions,
        # the same at each start: what is made is kept
        hydra={"run": {"dir": "outputs/reproduce/${hydra:runtime.choices.experiment}/${size}"}},
    ),
}
"""The commands that Hydra runs, those that most people want first."""

OBJECTIVES = {"search": "makespan_ms", "frontier": "energy_j", "run": "energy_j"}
"""By command: the figure of its ``result.json`` that sweepers minimize."""

REFUSED = {"compare": ("search.begin_with", "search.export")}
"""Options that a command does not take, though a group that it shares with others has them."""


class Option(NamedTuple):
    """An option with its default.

    Attributes:
        name: As on the command line, such as ``search.memory``.
        default: `REQUIRED` where it has to be given; for a group the name of the kind.
        meaning: The text that help and docs have for it.
    """

    name: str
    default: Any
    meaning: str


def own_options(record: type, **given: object) -> tuple[Option, ...]:
    """Return the options of a record that are in no group of its own.

    Args:
        record: The dataclass.
        given: Defaults in place of its own.
    """
    own = [each for each in fields(record) if "meaning" in each.metadata]
    assert set(given) <= {each.name for each in own}, f"{given} are options of {record.__name__}"
    return tuple(
        Option(each.name, given.get(each.name, _default(each)), each.metadata["meaning"].text) for each in own
    )


def _default(option: Field[Any]) -> Any:
    if option.default_factory is not MISSING:
        return option.default_factory()
    return REQUIRED if option.default is MISSING else option.default


def _shape(name: str) -> tuple[Option, ...]:
    """Return the options of a shape: the arguments of its function in ticks, and what all shapes have."""
    own = options_of(SHAPES[name])
    meanings = SHAPE_MEANINGS | (OF_CHUNKS if "num_chunks" in own else {})
    of_all = {"tick_ms": 10.0, "num_gpus": 1, "data_parallel": None}
    defaults = {"kind": name} | own | {"num_devices": None} | of_all
    return tuple(Option(each, default, meanings[each]) for each, default in defaults.items())


GROUPS: Mapping[str, Mapping[str, tuple[Option, ...]]] = {
    "placement": {
        "file": own_options(FilePlacementOptions),
        "galvatron": own_options(PlanPlacementOptions),
        "gpt": own_options(GptPlacementOptions),
        "planned": own_options(PlannedPlacementOptions),
        "profiled": own_options(ProfiledPlacementOptions),
        "stages": own_options(StagesPlacementOptions),
        **{name: _shape(name) for name in SHAPES},
    },
    "search": {"default": own_options(SearchOptions)},
    "profile": {"default": own_options(ProfileOptions)},
    "profiling": {"default": own_options(ProfilingOptions)},
    "energy": {"default": own_options(EnergyOptions)},
    "runtime": {"default": own_options(RuntimeOptions)},
    "cluster": {
        # Gavel's simulated cluster and its physical one (dissertation, Sec. 5.7.1)
        "gavel": own_options(GpuClusterOptions),
        "physical": own_options(GpuClusterOptions, workers="8:16:24"),
    },
    "trace": {
        "file": own_options(FileTraceOptions),
        # as Gavel's generator draws them (dissertation, Sec. 5.7.1), of one GPU each
        "generated": own_options(GeneratedTraceOptions),
        # all there from the start, for policies that minimize the makespan
        "static": own_options(GeneratedTraceOptions, lam_s=0, num_jobs=100),
        # of 1, 2, 4 and 8 GPUs, at the load of Gavel's figures of these: 2.6 jobs per hour
        "multi_gpu": own_options(GeneratedTraceOptions, lam_s=1384.6, multi_gpu=True),
        # of the comparison of cost policies (dissertation, Sec. 5.7.3): long ones of two models, with SLOs
        "cost_study": own_options(
            GeneratedTraceOptions,
            lam_s=0,
            num_jobs=500,
            slos=True,
            durations_h=[12, 24, 48, 96, 192],
            types=["ResNet-50", "A3C"],
        ),
    },
    "policy_options": {"default": own_options(PolicyOptions)},
    "estimator": {"default": own_options(EstimatorOptions)},
    "failures": {"default": own_options(FailureOptions)},
}
"""The kinds of each group of options."""


PRESETS: Mapping[str, Mapping[str, Any]] = {
    # No bubble in the steady state with three quarters of 1F1B's memory: each backward block in two, and each
    # of the 4 devices with two stages, as in ZB-V. 1F1B holds 8 activations of such stages there.
    "zero_bubble": {
        "defaults": [{"override /placement": "wave_shape"}],
        "placement": {"split_backward": True},
        "search": {"memory": 6, "num_micro_batches": 12},
    },
}
"""The choices of ``experiment`` in the commands that search: each sets many options at once."""

ITEMS: dict[str, tuple[Option, ...]] = {}
"""The options of each item to reproduce; `experiments.reproductions.catalogue.list_items` fills it."""


def groups_of(command: str) -> dict[str, str]:
    """Return the groups of a command, and the kind of each that it has unless another is chosen."""
    record = COMMANDS[command].record
    return {each.name: each.metadata["group"] for each in fields(record) if "group" in each.metadata}


def tell_hydra(command: str) -> None:
    """Give Hydra the config of a command and its groups; the option of one may be the group of another."""
    from hydra.core.config_store import ConfigStore  # which help does not wait for

    store = ConfigStore.instance()
    for group in (*GROUPS, "experiment"):
        store.repo.pop(group, None)  # of another command of this process
    for group in groups_of(command):
        for kind, options in GROUPS[group].items():
            store.store(kind, _values(options), group)
    experiments = {name: _values(options) for name, options in ITEMS.items()}
    for name, values in (experiments if command == REPRODUCE else PRESETS).items():
        store.store(name, dict(values), "experiment", package="_global_")
    store.store(command, _config(command, COMMANDS[command]))


def _config(name: str, command: Command) -> dict[str, Any]:
    has_experiment = command.has_presets or name == REPRODUCE
    defaults = [
        "output",
        *({group: kind} for group, kind in groups_of(name).items()),
        *({f"override hydra/{group}": kind} for group, kind in command.overrides.items()),
        "_self_",
        *([{"experiment": None}] if has_experiment else []),
    ]
    hydra = {"job": {"name": name}} | dict(command.hydra)
    return {"defaults": defaults, **_values(own_options(command.record)), "hydra": hydra}


def _values(options: Iterable[Option]) -> dict[str, Any]:
    """Return the defaults as Hydra takes them."""
    return {
        each.name: list(each.default) if isinstance(each.default, tuple) else each.default for each in options
    }
