"""Options kept from a run that died, and options that may change when it goes on."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from experiments.config.declaring import tell_hydra
from experiments.config.option_list import CONFIG
from experiments.config.options import OptionError
from experiments.run.options import RunCommandOptions
from experiments.run.resumed import KeptOptions, kept_options, resume_command, resumed_directory, save_options
from experiments.search.options import read_options


def changed(options: RunCommandOptions, **more: object) -> RunCommandOptions:
    return replace(options, runtime=replace(options.runtime, **more))  # type: ignore[arg-type]


def with_table(options: RunCommandOptions, path: str) -> RunCommandOptions:
    return replace(options, profile=replace(options.profile, clock_latency=path))


@pytest.fixture
def options() -> RunCommandOptions:
    tell_hydra("run")
    with initialize_config_dir(str(CONFIG), version_base="1.3"):
        return read_options(compose("run"), RunCommandOptions)


@pytest.fixture
def died(options: RunCommandOptions, tmp_path: Path) -> Path:
    """The output directory of a run that died."""
    run = changed(options, iterations=50, seed=7, recompute=("F0",), verify="all", resume="elsewhere")
    save_options(KeptOptions.of(with_table(run, "before.json")), tmp_path)
    (tmp_path / "scripts").mkdir()
    return tmp_path


def test_a_run_keeps_its_options_but_those_given_anew(options: RunCommandOptions, died: Path) -> None:
    given = changed(options, resume=str(died), launcher="fork", iterations=60)
    assert resumed_directory(given.runtime) == died
    kept = kept_options(died, given, [f"runtime.resume={died}"])
    assert kept.runtime == changed(options, iterations=50, seed=7, recompute=("F0",), verify="all").runtime
    more = kept_options(died, given, [f"runtime.resume={died}", "runtime.iterations=60"])
    assert more == replace(kept, runtime=replace(kept.runtime, iterations=60))


def test_a_run_keeps_what_changes_of_clock_take(
    options: RunCommandOptions, died: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on from any folder, and with another file if that one is gone."""
    before = Path("before.json").resolve()
    monkeypatch.chdir(died)
    resume = f"runtime.resume={died}"
    assert kept_options(died, options, [resume]).clock_latency == before
    given = with_table(options, "other.json")
    kept = kept_options(died, given, [resume, "profile.clock_latency=other.json"])
    assert kept.clock_latency == died / "other.json"
    assert kept_options(died, options, [resume, "profile.clock_latency=null"]).clock_latency is None


def test_checkpoints_alone_are_no_output_directory(options: RunCommandOptions, tmp_path: Path) -> None:
    assert resumed_directory(options.runtime) is None
    assert resumed_directory(replace(options.runtime, resume=str(tmp_path))) is None


@pytest.mark.parametrize(
    "override", ["placement=k_shape", "runtime.seed=1", "+search.x=1", "~energy.dwell_ms"]
)
def test_what_is_in_the_scripts_cannot_be_changed(
    override: str, options: RunCommandOptions, died: Path
) -> None:
    name = override.lstrip("+~").partition("=")[0]
    with pytest.raises(OptionError, match=f"^{name}: cannot be changed when .* leave it out, or give"):
        kept_options(died, options, [f"runtime.resume={died}", override])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "runtime.json: cannot be read .*; give the output directory of schedsearch run"),
        ({"schema_version": 9}, "runtime.json: schema_version: 9 is not known; write 1"),
        ({"schema_version": 1}, "runtime.json: lacks the field 'runtime'"),
        ({"schema_version": 1, "runtime": {"iterations": "6"}}, "runtime.model: has no value"),
        ({"schema_version": 1, "clock_latency": 3}, "clock_latency: 3 is not a path; give profile.clock_lat"),
    ],
)
def test_a_file_that_is_no_record_of_a_run_is_named(
    data: object, message: str, options: RunCommandOptions, died: Path
) -> None:
    (died / "runtime.json").unlink()
    if data is not None:
        (died / "runtime.json").write_text(json.dumps(data))
    with pytest.raises(OptionError, match=message):
        kept_options(died, options, [])


@pytest.mark.parametrize(
    "name", ["plain", "two words", "a'b", 'a"b', "a=b,c", "{a}", "größe", "$HOME", "a\\b"]
)
def test_the_command_that_is_printed_names_the_directory_to_shell_and_hydra(name: str) -> None:
    words = shlex.split(resume_command(Path("/data") / name))
    assert words[:2] == ["schedsearch", "run"]
    (override,) = OverridesParser.create().parse_overrides(words[2:])
    assert override.key_or_group == "runtime.resume"
    assert override.value() == f"/data/{name}"
