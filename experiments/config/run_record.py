"""Records of ended runs: a small file each, by which a sweep is resumed and made a table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

import schedsearch
from placements.forms.meaning import Meaning
from placements.forms.reading import json_file
from placements.forms.texts import write_json

FILE = "result.json"
"""In the output directory of a run."""

SCHEMA_VERSION = 1
"""Version of its form."""

DONE, REJECTED, FAILED, INTERRUPTED = "done", "rejected", "failed", "interrupted"
"""How a run ends. Rejected: its options are wrong, or nothing fits them, as with too little memory."""


class RunRecordError(ValueError):
    """A ``result.json`` is wrong; the message names the file, the field and the remedy in one line."""


@dataclass(frozen=True)
class RunRecord:
    """The record of a run.

    Attributes:
        command: That ran, without ``experiments.``.
        version: Of this project.
        overrides: Options of the command line, such as ``search.memory=3``.
        inputs: A hash of all options, the defaults too, and of the files that they name.
        started: When the command began; the same for all points of a sweep.
        status: How it ended; see `DONE`.
        message: Why, where it is not done.
        figures: Figures of the result, by names with their units; text too, as a status.
    """

    command: str
    version: str
    overrides: tuple[str, ...]
    inputs: str
    started: str
    status: Annotated[str, Meaning("", choices=(DONE, REJECTED, FAILED, INTERRUPTED))] = INTERRUPTED
    message: str = "has not ended yet, or was killed"
    figures: Mapping[str, float | str] = field(default_factory=dict)

    @classmethod
    def of_this_run(cls, command: str, config: DictConfig) -> RunRecord:
        """Return the record of the run of a config that Hydra has begun."""
        started = str(HydraConfig.get().callbacks["sweep"]["started"])
        return cls(command, schedsearch.__version__, tuple(given_words()), _inputs_hash(config), started)

    def number(self, name: str) -> float | None:
        """Return a figure that is a number; None if there is none of that name."""
        value = self.figures.get(name)
        return None if isinstance(value, str) else value

    @property
    def options(self) -> dict[str, int | float | bool | str | None]:
        """The options of the command line by name; lists and mappings as text."""
        overrides = {override.key_or_group: override for override in _parsed(self.overrides)}
        values = {name: override.value() for name, override in overrides.items()}
        return {
            name: value if isinstance(value, int | float | str | None) else overrides[name].get_value_string()
            for name, value in values.items()
        }

    def save(self) -> None:
        """Write ``result.json`` in the output directory, unless the command keeps nothing of its runs."""
        hydra = HydraConfig.get()
        if hydra.output_subdir is not None or sweep_directory():
            data = {"schema_version": SCHEMA_VERSION} | asdict(self)
            write_json(Path(hydra.runtime.output_dir) / FILE, data)

    def done_before(self) -> RunRecord | None:
        """Return the record in the output directory if it is of the same inputs and version, and done."""
        try:
            before = read_run_record(Path(HydraConfig.get().runtime.output_dir))
        except RunRecordError:
            return None
        mine = self.command, self.version, self.inputs, DONE
        return before if (before.command, before.version, before.inputs, before.status) == mine else None


def read_run_record(directory: Path) -> RunRecord:
    """Read the record in an output directory.

    Raises:
        RunRecordError: It is not there, or wrong.
    """
    path = directory / FILE
    with json_file(path, f"the directory of a run that has ended, with its {FILE}", RunRecordError) as whole:
        whole.version(SCHEMA_VERSION)
        return replace(whole, is_open=True).record(RunRecord)


def _inputs_hash(config: DictConfig) -> str:
    """Return a hash of all options and of the files that they name."""
    digest = hashlib.sha256(OmegaConf.to_yaml(config).encode())
    for path in sorted(_files_named_in(OmegaConf.to_container(config))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files_named_in(value: object) -> Iterator[Path]:
    """Yield the files among some options; of a directory its tables and descriptions."""
    if isinstance(value, dict | list):
        for option in value.values() if isinstance(value, dict) else value:
            yield from _files_named_in(option)
    elif isinstance(value, str) and value and (path := Path(value)).exists():
        inside = (file for kind in ("csv", "json", "yaml") for file in path.glob(f"*.{kind}"))
        yield from inside if path.is_dir() else [path]


def how_to_resume(directory: Path) -> str:
    """Return the last words of a sweep that did not do all of its points."""
    return f"the same command with hydra.sweep.dir={directory} runs the points that are not done"


def sweep_directory() -> Path | None:
    """Return the directory of the sweep that the run is a point of; None where it is none."""
    hydra = HydraConfig.get()
    return Path(hydra.sweep.dir) if hydra.mode == RunMode.MULTIRUN else None


def output_directory() -> Path:
    """Return where Hydra wants the output."""
    return Path(HydraConfig.get().runtime.output_dir)


def given_words() -> list[str]:
    """Return the options of the command line as they are; an interpolation in them stays."""
    overrides = OmegaConf.to_container(HydraConfig.get().overrides.task)
    assert isinstance(overrides, list)
    return [str(override) for override in overrides]


def given_names() -> list[str]:
    """Return the names of the options that the command line gives."""
    return [override.key_or_group for override in _parsed(given_words())]


def _parsed(words: Sequence[str]) -> list[Override]:
    return OverridesParser.create().parse_overrides(list(words))
