"""Results that Perseus's authors publish as files beside their profiles, read into plain figures.

EnvPipe's points and the planned frontiers of the emulation, and what was measured on GPUs: Perseus's and
Zeus's frontiers. A file that is not there gives nothing, a wrong one raises DataError.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from experiments.reproduce.perseus.workloads import DataError, PerseusWorkload
from placements.forms.reading import in_file
from placements.forms.tables import Cell, csv_rows

ENVPIPE_FILE = Path("published", "envpipe_result.csv")

_ENVPIPE_MODEL = {"gpt3_175b": "gpt3-175b", "bloom_176b": "bloom"}
_ENVPIPE_GPU = {"a100": "a100_sxm", "a40": "a40"}
_ZEUS_GPU = {"a100": "A100", "a40": "A40"}
_ZEUS_MODEL = {
    "gpt3_1.3b": "gpt3-xl",
    "gpt3_2.7b": "gpt3-2.7b",
    "gpt3_6.7b": "gpt3-6.7b",
    "bert_huge": "bert-huge-uncased",
    "t5_3b": "t5-3b",
    "bloom_3b": "bloom-3b",
    "wide_resnet101_8": "wide-resnet101_8",
}
_ZEUS_FILES = {"ZeusGlobal": "zeus_global.csv", "ZeusPerStage": "zeus_local.csv"}


class AuthorsIteration(NamedTuple):
    """Length and energy of all GPUs of an iteration, measured or planned."""

    time_s: float
    energy_j: float


def envpipe_iteration(
    folder: Path, workload: PerseusWorkload, num_micro_batches: int
) -> AuthorsIteration | None:
    """Return EnvPipe's iteration of the emulation, at full scale; None where it is not in the folder."""
    wanted = {
        "model": _ENVPIPE_MODEL.get(workload.model, ""),
        "device": _ENVPIPE_GPU[workload.gpu],
        "num_microbatches": str(num_micro_batches),
    }
    found = _iterations(folder / ENVPIPE_FILE, wanted, "iteration_time")
    return next(found, None)


def planned_frontier(
    folder: Path, workload: PerseusWorkload, num_micro_batches: int
) -> list[AuthorsIteration]:
    """Return the frontier that the authors planned for the emulation; empty where it is not in the folder.

    Returns:
        Of one of eight GPUs, and a tenth of each stage, as in their profiles; by increasing time.
    """
    name = f"{_ENVPIPE_MODEL.get(workload.model, '')}_bf16_mb{num_micro_batches}.csv"
    return sorted(_iterations(folder / "published" / _ENVPIPE_GPU[workload.gpu] / name, {}, "time"))


def measured_frontier(folder: Path, workload: PerseusWorkload) -> list[AuthorsIteration]:
    """Return the measured iterations of Perseus's plans by increasing time; none without their file.

    The first two runs of a file are those at the highest clocks, and are left out.
    """
    path = folder / workload.profile.replace(".csv", ".measured_frontier.csv")
    return sorted(list(_iterations(path, {}, "time"))[2:]) if workload.profile else []


def measured_zeus(folder: Path, workload: PerseusWorkload) -> dict[str, list[AuthorsIteration]]:
    """Return measured iterations of ZeusGlobal and ZeusPerStage, from the highest power limit downwards.

    Of a model that was divided in several ways, those of the file's first division, the most even one.
    """
    wanted = {
        "model_name": _ZEUS_MODEL.get(workload.model, ""),
        "pp": str(workload.num_stages),
        "tp": str(workload.tensor_parallel),
    }
    same = "partition_method"
    below = folder / "published" / "zeus" / "csv" / _ZEUS_GPU[workload.gpu]
    return {name: list(_iterations(below / file, wanted, "time", same)) for name, file in _ZEUS_FILES.items()}


def _iterations(
    path: Path, wanted: Mapping[str, str], time_column: str, same: str = ""
) -> Iterator[AuthorsIteration]:
    """Yield the rows of a file with some values, and with the first one's in one more column."""
    if not path.is_file():
        return
    columns = (*wanted, *([same] if same else []), time_column, "energy")
    first: str | None = None
    for row in csv_rows(path, "iteration", DataError, columns):
        if all(row.text(column) == value for column, value in wanted.items()):
            if same and (first := row.text(same) if first is None else first) != row.text(same):
                continue
            with in_file(path, DataError):
                yield AuthorsIteration(_positive(row[time_column]), _positive(row["energy"]))


def _positive(cell: Cell) -> float:
    return cell.number("a number above 0", "give one", math.ulp(0))
