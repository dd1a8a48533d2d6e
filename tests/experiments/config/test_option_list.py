"""The options that the configs give are those of the records, and each has a meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import get_type_hints

import hydra
import pytest
import yaml

from experiments.config.composing import find_presets_first
from experiments.config.option_list import COMMANDS, CONFIG, REFUSED, kinds_of, names_of, options_of
from experiments.config.options import read_fields, read_options
from experiments.config.records import (
    CheckOptions,
    ClusterCommandOptions,
    ClusterStudyOptions,
    CompareOptions,
    FileTraceOptions,
    FrontierCommandOptions,
    GeneratedTraceOptions,
    MemorySweepOptions,
    Options,
    PlanCommandOptions,
    PredictOptions,
    PricesOptions,
    ProfileCommandOptions,
    ReproduceAllOptions,
    ReproduceOptions,
    RunCommandOptions,
    SweepOptions,
    TransferSweepOptions,
)
from experiments.reproductions.catalogue import ITEMS

RECORDS: dict[str, type] = {
    "cluster": ClusterCommandOptions,
    "compare": CompareOptions,
    "plan": PlanCommandOptions,
    "search": Options,
    "frontier": FrontierCommandOptions,
    "run": RunCommandOptions,
    "profile": ProfileCommandOptions,
    "check": CheckOptions,
    "reproduce": ReproduceOptions,
    "predict": PredictOptions,
    "prices": PricesOptions,
    "bubble_by_in_flight": SweepOptions,
    "bubble_by_memory": MemorySweepOptions,
    "time_by_transfer": TransferSweepOptions,
    "cluster_study": ClusterStudyOptions,
}


def names(record: type, prefix: str = "") -> Iterator[str]:
    for name, kind in get_type_hints(record).items():
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            yield from names(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_the_options_of_its_record(command: str) -> None:
    found = {name for name in names_of(command) if not name.startswith(("placement.", "trace."))}
    of_record = set(names(RECORDS[command])) - set(REFUSED.get(command, ()))
    if command == "reproduce":
        of_record |= {name for item in ITEMS.values() for name in names(item.options)}
        of_record |= set(names(ReproduceAllOptions))
    groups = {"experiment", "cluster"} if command == "cluster" else {"experiment"}
    assert found - of_record <= groups, "whose files set other options"
    assert of_record <= found


@pytest.mark.parametrize("placement", [path.stem for path in (CONFIG / "placement").glob("*.yaml")])
def test_every_option_has_a_meaning(placement: str) -> None:
    every = (option for command in COMMANDS for option in options_of(command, {"placement": placement}))
    assert not {option.name for option in every if not option.meaning}


@pytest.mark.parametrize("trace", kinds_of("cluster", "trace"))
def test_each_kind_of_trace_has_the_options_of_its_record(trace: str) -> None:
    record = FileTraceOptions if trace == "file" else GeneratedTraceOptions
    options = [each for each in options_of("cluster", {"trace": trace}) if each.name.startswith("trace.")]
    assert [each.name.removeprefix("trace.") for each in options] == list(names(record))
    assert all(each.meaning for each in options)


def test_each_item_to_reproduce_has_a_config_with_the_defaults_of_its_record() -> None:
    assert kinds_of("reproduce", "experiment") == sorted([*ITEMS, "all"])
    common = set(names(ReproduceOptions))
    for name, item in ITEMS.items():
        lines = options_of("reproduce", {"experiment": name})
        data = {line.name: yaml.safe_load(line.default) for line in lines if line.name != "experiment"}
        assert not {line.name for line in options_of("reproduce", {"experiment": name}) if not line.meaning}
        own = {key: value for key, value in data.items() if key not in common}
        assert read_fields(own, item.options, "") == item.options(), name


def test_help_says_what_an_option_means(command) -> None:
    done = command("search", "placement=v_shape", "--help")
    assert done.returncode == 0, done.stderr
    assert "placement.split_backward=false " in done.stdout
    meaning = " true: the backward is two blocks: I, the gradient of the input, and W, the"
    assert meaning in " ".join(done.stdout.split())
    assert "energy.slowdown" not in done.stdout


@pytest.fixture
def presets_first() -> Iterator[None]:
    """As in the commands that search."""
    find_presets_first("run")
    yield
    find_presets_first("reproduce")


@pytest.mark.usefixtures("presets_first")
@pytest.mark.parametrize("name", kinds_of("run", "experiment"))
def test_an_experiment_overrides_from_one_file(name: str) -> None:
    with hydra.initialize_config_dir(str(CONFIG), version_base="1.3"):
        plain = read_options(hydra.compose("run"), RunCommandOptions)
        changed = read_options(hydra.compose("run", [f"experiment={name}"]), RunCommandOptions)
        again = read_options(hydra.compose("run", [f"experiment={name}", "search.seed=7"]), RunCommandOptions)
    assert changed != plain
    assert again == dataclasses.replace(changed, search=dataclasses.replace(changed.search, seed=7))
