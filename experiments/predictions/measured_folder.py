"""A folder of profiles, links and plans with what was measured of them; see `docs/commands/predict.md`.

It does not know what is predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from placements.measured.layer_profile import LayerProfile, read_layer_profile
from placements.measured.link_fit import Links, read_links
from placements.measured.plan_file import ReplicatedPlan, read_replicated_plan
from placements.plain_data import Field, Row, csv_rows, in_file, read_csv

_GIB = 2**30

TABLE = "plans.csv"


class MeasuredFolderError(ValueError):
    """A folder of plans is wrong; the message names the file, the value and the remedy in one line."""


@dataclass(frozen=True)
class MeasuredPlan:
    """A plan that was run.

    Attributes:
        name: Of its file.
        model: Of which it is.
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


def read_measured_folder(folder: str | Path) -> MeasuredFolder:
    """Read a folder; without a profile of a model or a type of GPU, plans on it just have no prediction.

    Raises:
        ValueError: A file is missing or wrong; the message begins with its path.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise MeasuredFolderError(f"{folder}: is not a folder; give one with {TABLE}, plans/ and profiles/")
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
        rows = csv_rows(
            read_csv(path, MeasuredFolderError), "plan", MeasuredFolderError, ("plan", "model"), others=True
        )
        plans = tuple(_read_plan(folder, row) for _, row in rows)
    names = [plan.name for plan in plans]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise MeasuredFolderError(f"{path}: {twice[0]!r} is in two rows; name each plan once")
    return plans


def _read_plan(folder: Path, row: Row) -> MeasuredPlan:
    name, model = _file_name(row["plan"]), _file_name(row["model"])
    used_bytes = _number(row, "max_mem_B")
    return MeasuredPlan(
        name,
        model,
        read_replicated_plan(folder / "plans" / f"{name}.json"),
        _number(row, "real_s"),
        None if used_bytes is None else used_bytes / _GIB,
        row["note"].value if "note" in row else "",
    )


def _file_name(cell: Field) -> str:
    name = str(cell.value)
    if name.startswith(".") or any(mark in name for mark in "/\\\0"):
        raise cell.wrong("the name of a file", "give one without folders")
    return name


def _number(row: Row, column: str) -> float | None:
    """Return what was measured; None where the cell is empty or not there."""
    if column not in row or not row[column].value:
        return None
    remedy = "give one, or leave it empty"
    return row[column].number("a number above 0", remedy, min=math.ulp(0.0))
