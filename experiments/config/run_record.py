"""What each run says of itself when it ends: a small file, by which a sweep is resumed and made a table."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from placements.files import read_json, write_json
from placements.plain_data import Field, in_file

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
        version: Of this project; empty where it is not installed.
        overrides: Of the command line, such as ``search.memory=3``.
        started: When the command began; the same for all points of a sweep.
        status: How it ended; see `DONE`.
        message: Why, where it is not done.
        figures: What was found, by names with their units.
    """

    command: str
    version: str
    overrides: tuple[str, ...]
    started: str
    status: str = INTERRUPTED
    message: str = "has not ended yet, or was killed"
    figures: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_this_run(cls, command: str) -> RunRecord:
        """Return the record of the run that Hydra has begun."""
        hydra = HydraConfig.get()
        try:
            version = metadata.version("schedsearch")
        except metadata.PackageNotFoundError:
            version = ""
        return cls(command, version, tuple(hydra.overrides.task), str(hydra.callbacks["sweep"]["started"]))

    @property
    def options(self) -> dict[str, int | float | bool | str | None]:
        """The options of the command line by name; lists and mappings as text."""
        given = OverridesParser.create().parse_overrides(list(self.overrides))
        return {each.key_or_group: _plain(each) for each in given}

    def save(self) -> None:
        """Write ``result.json`` in the output directory, unless the command keeps nothing of its runs."""
        hydra = HydraConfig.get()
        if hydra.output_subdir is not None or is_sweep():
            data = {"schema_version": SCHEMA_VERSION} | asdict(self)
            write_json(Path(hydra.runtime.output_dir) / FILE, data)

    def done_before(self) -> RunRecord | None:
        """Return the record in the output directory if it is of the same run, and done."""
        try:
            before = read_run_record(Path(HydraConfig.get().runtime.output_dir))
        except RunRecordError:
            return None
        now = replace(before, command=self.command, version=self.version, overrides=self.overrides)
        return before if before == now and before.status == DONE else None


def read_run_record(directory: Path) -> RunRecord:
    """Read the record in an output directory.

    Raises:
        RunRecordError: It is not there, or wrong.
    """
    path = directory / FILE
    data = read_json(path, f"the directory of a run that has ended, with its {FILE}", RunRecordError)
    with in_file(path, RunRecordError):
        whole = Field(data, "", RunRecordError)
        whole.version(SCHEMA_VERSION)
        figures = whole["figures"]
        return RunRecord(
            whole["command"].text(),
            str(whole["version"].value),
            tuple(each.text() for each in whole["overrides"].items()),
            whole["started"].text(),
            whole["status"].choice((DONE, REJECTED, FAILED, INTERRUPTED)),
            str(whole["message"].value),
            {name: figures[name].number() for name in figures.mapping()},
        )


def _plain(override: Override) -> int | float | bool | str | None:
    value = override.value()
    if value is None or isinstance(value, (int, float, bool, str)):
        return value
    return override.get_value_string()


def is_sweep() -> bool:
    """Return whether the run that Hydra has begun is a point of a sweep."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


class SweepEnd(Callback):
    """Ends a sweep whose points did not all succeed with their names and exit code 1; called by Hydra."""

    def __init__(self, started: str) -> None:
        """Take when the command began."""
        self._started = started

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Say which points of this command failed, and exit if there are some."""
        directory = Path(config.hydra.sweep.dir)
        records = {path.parent: read_run_record(path.parent) for path in sorted(directory.rglob(FILE))}
        failed = {
            point: record
            for point, record in records.items()
            if record.started == self._started and record.status != DONE
        }
        for point, record in failed.items():
            swept = " ".join(record.overrides)
            print(f"{point}: {record.status}: {swept}: {record.message}", file=sys.stderr)  # noqa: T201
        if failed:
            name = config.hydra.job.name
            print(  # noqa: T201
                f"{name}: {len(failed)} points of the sweep are not done; the same command with "
                f"hydra.sweep.dir={directory} tries only these again",
                file=sys.stderr,
            )
            sys.exit(1)
