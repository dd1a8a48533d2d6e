"""The options that the configs give are those of the records, and each has a meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import get_type_hints

import hydra
import pytest

from experiments.config.option_list import COMMANDS, CONFIG, PRESETS, names_of, options_of
from experiments.config.options import read_options
from experiments.config.records import (
    CheckOptions,
    CompareOptions,
    FrontierCommandOptions,
    MemorySweepOptions,
    Options,
    PlanCommandOptions,
    PredictOptions,
    ProfileCommandOptions,
    ReproduceOptions,
    RunCommandOptions,
    SweepOptions,
    TransferSweepOptions,
)

RECORDS = {
    "compare": CompareOptions,
    "plan": PlanCommandOptions,
    "search": Options,
    "frontier": FrontierCommandOptions,
    "run": RunCommandOptions,
    "profile": ProfileCommandOptions,
    "check": CheckOptions,
    "reproduce": ReproduceOptions,
    "predict": PredictOptions,
    "bubble_by_in_flight": SweepOptions,
    "bubble_by_memory": MemorySweepOptions,
    "time_by_transfer": TransferSweepOptions,
}


def names(record: type, prefix: str = "") -> Iterator[str]:
    for name, kind in get_type_hints(record).items():
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            yield from names(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_the_options_of_its_record(command: str) -> None:
    found = {name for name in names_of(command) if not name.startswith("placement.")}
    of_record = set(names(RECORDS[command]))
    assert found - of_record <= {"experiment"}, "a group, whose files set other options"
    assert of_record <= found


@pytest.mark.parametrize("placement", [path.stem for path in (CONFIG / "placement").glob("*.yaml")])
def test_every_option_has_a_meaning(placement: str) -> None:
    every = (option for command in COMMANDS for option in options_of(command, {"placement": placement}))
    assert not {option.name for option in every if not option.meaning}


def test_help_says_what_an_option_means(command) -> None:
    done = command("search", "placement=v_shape", "--help")
    assert done.returncode == 0, done.stderr
    assert "placement.split_backward=false " in done.stdout
    assert "  two blocks: I, the input's gradient, and W, the weights'\n" in done.stdout
    assert "energy.slowdown" not in done.stdout


@pytest.mark.parametrize("name", [path.stem for path in (PRESETS / "experiment").glob("*.yaml")])
def test_an_experiment_overrides_from_one_file(name: str) -> None:
    with hydra.initialize_config_dir(str(CONFIG), version_base="1.3"):
        plain = read_options(hydra.compose("run"), RunCommandOptions)
        changed = read_options(hydra.compose("run", [f"experiment={name}"]), RunCommandOptions)
        again = read_options(hydra.compose("run", [f"experiment={name}", "search.seed=7"]), RunCommandOptions)
    assert changed != plain
    assert again == dataclasses.replace(changed, search=dataclasses.replace(changed.search, seed=7))
