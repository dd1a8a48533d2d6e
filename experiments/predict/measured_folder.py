"""A folder of profiles, links and plans with what was measured of them; see `docs/commands/predict.md`.

It does not know what is predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from placements.meaning import Meaning
from placements.measured.layer_profile import LayerProfile, read_layer_profile
from placements.measured.link_fit import Links, read_links
from placements.measured.plan_file import ReplicatedPlan, read_replicated_plan
from placements.plain_data import in_file
from placements.tables import csv_records

_GIB = 2**30

TABLE = "plans.csv"


class MeasuredFolderError(ValueError):
    """A folder of plans is wrong; the message names the file, the value and the remedy in one line."""


@dataclass(frozen=True)
class MeasuredPlan:
    """A plan that was run.

    Attributes:
        name: Name of its file.
        model: Model that it belongs to.
        plan: Stages, replicas and batch.
        measured_s: Seconds of an iteration; None where they were not measured.
        measured_gib: The most that a GPU held; likewise.
        note: What stands beside it: it is then predicted, but not counted.
    """

    name: str
    model: str
    plan: ReplicatedPlan
    measured_s: float | None
    measured_gib: float | None
    note: str


@dataclass(frozen=True)
class MeasuredFolder:
    """All that a folder has.

    Attributes:
        plans: In the order of the table.
        profiles: What the layers of each model cost, by model and then by type of GPU.
        links: Bandwidths.
    """

    plans: tuple[MeasuredPlan, ...]
    profiles: Mapping[str, Mapping[str, LayerProfile]]
    links: Links


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

    def plan_in(self, folder: Path, line: int) -> MeasuredPlan:
        """Return the plan, whose file is in the folder.

        Raises:
            MeasuredFolderError: A name is not that of a file.
            PlanFileError: The plan's file is wrong.
        """
        for column in ("plan", "model"):
            name = getattr(self, column)
            if name.startswith(".") or any(mark in name for mark in "/\\\0"):
                raise MeasuredFolderError(
                    f"line {line}, column {column}: {name!r} is not the name of a file; give one "
                    "without folders"
                )
        return MeasuredPlan(
            self.plan,
            self.model,
            read_replicated_plan(folder / "plans" / f"{self.plan}.json"),
            self.real_s,
            None if self.max_memory_bytes is None else self.max_memory_bytes / _GIB,
            self.note,
        )


def read_measured_folder(folder: str | Path) -> MeasuredFolder:
    """Read a folder; without a profile of a model or a type of GPU, plans on it just have no prediction.

    Raises:
        ValueError: A file is missing or wrong; the message begins with its path.
    """
    folder = Path(folder)
    links = read_links(folder / "bandwidth/inter_node.json", folder / "bandwidth/intra_node.json")
    plans = _read_plans(folder)
    profiles = {model: _read_profiles(folder, model) for model in sorted({plan.model for plan in plans})}
    return MeasuredFolder(plans, profiles, links)


def _read_profiles(folder: Path, model: str) -> dict[str, LayerProfile]:
    memory = folder / "memory" / f"{model}.json"
    files = sorted((folder / "profiles" / model).glob("*.json")) if memory.is_file() else []
    return {path.stem: read_layer_profile(path, memory, path.stem) for path in files}


def _read_plans(folder: Path) -> tuple[MeasuredPlan, ...]:
    path = folder / TABLE
    with in_file(path, MeasuredFolderError):
        rows = csv_records(path, "plan", MeasuredFolderError, MeasuredPlanRow, others=True, once=("plan",))
        return tuple(row.plan_in(folder, number) for number, row in rows)
