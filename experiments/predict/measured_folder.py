"""A folder of profiles, links and plans with their measurements; see `docs/commands/predict.md`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from placements.forms.meaning import Meaning
from placements.forms.reading import in_file
from placements.forms.tables import csv_records
from placements.measured.layer_profile import LayerProfile, read_layer_profiles
from placements.measured.link_fit import Links, read_links
from placements.measured.plan_file import ReplicatedPlan, read_replicated_plan

_GIB = 2**30

TABLE = "plans.csv"


class MeasuredFolderError(ValueError):
    """A folder of plans is wrong; the message names the file, the value and the remedy in one line."""


@dataclass(frozen=True)
class MeasuredPlanRow:
    """A row of the table of plans; other columns are not read."""

    plan: Annotated[str, Meaning("name of the plan's file")]
    model: Annotated[str, Meaning("name of the model's folder")]
    real_s: Annotated[float | None, Meaning("measured time of an iteration", "s", above=0)] = None
    max_memory_bytes: Annotated[
        float | None, Meaning("measured memory, the most of all GPUs", "bytes", above=0, key="max_mem_B")
    ] = None
    note: Annotated[str, Meaning("remark, which the predictions repeat")] = ""

    @property
    def max_gib(self) -> float | None:
        """The same memory in GiB."""
        return None if self.max_memory_bytes is None else self.max_memory_bytes / _GIB


class MeasuredPlan(NamedTuple):
    """A plan that was run, and its row; one with a note is predicted, but not counted."""

    row: MeasuredPlanRow
    plan: ReplicatedPlan


@dataclass(frozen=True)
class MeasuredFolder:
    """Contents of a folder: plans as in the table, costs of layers by model and type of GPU, bandwidths."""

    plans: tuple[MeasuredPlan, ...]
    profiles: Mapping[str, Mapping[str, LayerProfile]]
    links: Links


def read_measured_folder(folder: str | Path) -> MeasuredFolder:
    """Read a folder; without a profile of a model or a type of GPU, plans on it just have no prediction.

    Raises:
        ValueError: A file is missing or wrong; the message begins with its path.
    """
    folder = Path(folder)
    links, plans = read_links(folder / "bandwidth"), _read_plans(folder)
    profiles = {
        model: read_layer_profiles(folder, model) if (folder / f"memory/{model}.json").is_file() else {}
        for model in sorted({plan.row.model for plan in plans})
    }
    return MeasuredFolder(plans, profiles, links)


def _read_plans(folder: Path) -> tuple[MeasuredPlan, ...]:
    path, found = folder / TABLE, []
    with in_file(path, MeasuredFolderError):
        rows = csv_records(path, "plan", MeasuredFolderError, MeasuredPlanRow, others=True, once=("plan",))
        for line, row in rows:
            for column, name in (("plan", row.plan), ("model", row.model)):
                if name.startswith(".") or any(mark in name for mark in "/\\\0"):
                    raise MeasuredFolderError(
                        f"line {line}, column {column}: {name!r} is not the name of a file; give one "
                        "without folders"
                    )
            found.append(MeasuredPlan(row, read_replicated_plan(folder / "plans" / f"{row.plan}.json")))
    return tuple(found)
