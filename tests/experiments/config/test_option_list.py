"""Each option is declared once; commands read, explain and check options by their declarations."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

import hydra
import pytest
from omegaconf import OmegaConf

from experiments.cluster.options import TRACES, FileTraceOptions, GeneratedTraceOptions
from experiments.config.declaring import (
    Option,
    command_of,
    groups_of,
    options_of_item,
    own_options,
    tell_hydra,
)
from experiments.config.option_list import CONFIG, as_yaml, command_options, kinds_of, names_of
from experiments.config.options import OptionError, read_fields, read_record
from experiments.config.rooms import names
from experiments.predict.options import PredictOptions
from experiments.reproduce.catalogue import ITEMS
from experiments.run.options import RunCommandOptions
from experiments.search.kinds.galvatron import GalvatronPlacement
from experiments.search.kinds.gpt import GptPlacement
from experiments.search.kinds.kinds import PLACEMENTS
from experiments.search.kinds.stages import StagesPlacement
from experiments.search.options import read_options
from placements.forms.meaning import REQUIRED, option

BY_PLAN = {"num_micro_batches", "micro_batch_size", "recompute", "gpu"}
"""Null where a plan, or a usual value, stands for them; see `read_options`."""


def records(record: type) -> dict[str, type]:
    """Return the records of the groups of a record."""
    hints = get_type_hints(record)
    groups = [field.name for field in dataclasses.fields(record) if "group" in field.metadata]
    return {name: hints[name] for name in groups if dataclasses.is_dataclass(hints[name])}


@pytest.mark.parametrize("command", names())
def test_every_field_is_an_option_or_a_group(command: str) -> None:
    record = command_of(command).record
    for kind in (record, *records(record).values()):
        for field in dataclasses.fields(kind):
            assert ("meaning" in field.metadata) != ("group" in field.metadata), field.name
    assert all(group.kinds for group in groups_of(record).values())
    assert not [option for option in command_options(command) if not option.meaning]
    assert {option.name for option in command_options(command)} <= names_of(command)


@pytest.mark.parametrize("command", names())
def test_hydra_is_told_the_defaults_and_they_are_of_the_types(command: str) -> None:
    tell_hydra(command)
    with hydra.initialize_config_dir(str(CONFIG), version_base="1.3"):
        config = hydra.compose(command)
    record = command_of(command).record
    for prefix, kind in {"": record, **records(record)}.items():
        for name, default, *_ in own_options(kind):
            where = f"{prefix}.{name}" if prefix else name
            if default == REQUIRED:
                assert OmegaConf.is_missing(config[prefix] if prefix else config, name)
                continue
            assert OmegaConf.select(config, where) == default, where
            field = dataclasses.field(metadata=kind.__dataclass_fields__[name].metadata)
            holder = dataclasses.make_dataclass("Holder", [(name, get_type_hints(kind)[name], field)])
            if name not in BY_PLAN or default is not None:
                read_fields({name: list(default) if isinstance(default, tuple) else default}, holder, "")


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_every_kind_of_placement_says_which_it_is_and_what_its_options_mean(kind: str) -> None:
    options = PLACEMENTS[kind]
    assert options[0][:2] == ("kind", kind)
    assert all(option.meaning for option in options)
    kinds = {"gpt": GptPlacement, "galvatron": GalvatronPlacement, "stages": StagesPlacement}
    if kind in kinds:
        record: type[Any] = kinds[kind]
        assert [option.name for option in options] == [field.name for field in dataclasses.fields(record)]


@pytest.mark.parametrize("trace", sorted(kinds_of("cluster", "trace")))
def test_each_kind_of_trace_has_the_options_of_its_record(trace: str) -> None:
    record: type = FileTraceOptions if trace == "file" else GeneratedTraceOptions
    data = {option.name: "here" if option.default == REQUIRED else option.default for option in TRACES[trace]}
    assert read_fields(data, record, "trace").kind == ("file" if trace == "file" else "generated")


def test_each_item_to_reproduce_has_the_options_of_its_record() -> None:
    assert kinds_of("reproduce", "experiment") == {*ITEMS, "all"}
    for name, item in ITEMS.items():
        options = {option.name: option for option in options_of_item("reproduce", name)}
        assert list(options) == [field.name for field in dataclasses.fields(item.options)]
        assert all(option.meaning for option in options.values()), name
    tell_hydra("reproduce")
    for name in ("tessel_table2", "zero_bubble", "gavel_las"):
        with hydra.initialize_config_dir(str(CONFIG), version_base="1.3"):
            config: Any = OmegaConf.to_object(hydra.compose("reproduce", [f"experiment={name}"]))
        data = {option.name: config[option.name] for option in options_of_item("reproduce", name)}
        assert read_fields(data, ITEMS[name].options, "") == ITEMS[name].options(), name


def test_defaults_are_written_as_on_the_command_line() -> None:
    for command in names():
        for name, default, *_ in command_options(command):
            if not isinstance(default, str) and default is not None:
                plain = list(default) if isinstance(default, tuple) else default
                assert OmegaConf.create(f"value: {as_yaml(plain)}").value == plain, name


def test_help_says_what_an_option_means(command) -> None:
    done = command("search", "placement=v_shape", "--help")
    assert done.returncode == 0, done.stderr
    assert "placement.split_backward=false " in done.stdout
    meaning = " true: I (input gradient) and W (weights') instead of B"
    assert meaning in " ".join(done.stdout.split())
    assert "energy.slowdown" not in done.stdout


@pytest.mark.parametrize("name", command_of("run").presets)
def test_a_preset_sets_many_options_that_others_override(name: str) -> None:
    tell_hydra("run")
    with hydra.initialize_config_dir(str(CONFIG), version_base="1.3"):
        plain = read_options(hydra.compose("run"), RunCommandOptions)
        changed = read_options(hydra.compose("run", [f"experiment={name}"]), RunCommandOptions)
        again = read_options(hydra.compose("run", [f"experiment={name}", "search.seed=7"]), RunCommandOptions)
    assert changed != plain
    assert again == dataclasses.replace(changed, search=dataclasses.replace(changed.search, seed=7))


def test_an_option_needs_nothing_but_its_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    command = dataclasses.replace(command_of("predict"), record=WithMargin)
    monkeypatch.setattr("experiments.predict.options.COMMAND", command)
    tell_hydra("predict")
    with hydra.initialize_config_dir(str(CONFIG), version_base="1.3"):
        assert read_record(hydra.compose("predict", ["data=here"]), WithMargin).margin == 0.1
        wrong = hydra.compose("predict", ["data=here", "margin=-1"])
        with pytest.raises(OptionError, match="^margin: -1 is not a number from 0 to 1; give one$"):
            read_record(wrong, WithMargin)
    assert Option("margin", 0.1, "share that is added") in command_options("predict")
    monkeypatch.undo()
    tell_hydra("predict")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithMargin(PredictOptions):
    """A command's options, and one more."""

    margin: float = option(0.1, "share that is added", min=0, max=1)


def test_an_option_of_a_shape_is_an_argument_of_its_function() -> None:
    shape = {option.name: option for option in PLACEMENTS["wave_shape"]}
    assert shape["num_chunks"] == Option("num_chunks", 2, "stages per device")
    assert shape["forward_time"].meaning == "ticks, of one chunk"
    assert shape["num_devices"].default is None
