"""Results that Perseus's authors publish as files beside their profiles.

EnvPipe's points of the emulation, and measurements on GPUs: Perseus's and Zeus's frontiers. A file that is
missing gives nothing, a wrong one raises DataError.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from experiments.reproduce.perseus.workloads import DataError, Workload
from placements.forms.meaning import Meaning
from placements.forms.tables import csv_records

ENVPIPE_FILE = Path("published", "envpipe_result.csv")

_ENVPIPE_GPU = {"a100": "a100_sxm", "a40": "a40"}
_ZEUS_FILES = {"ZeusGlobal": "zeus_global.csv", "ZeusPerStage": "zeus_local.csv"}

_Seconds = Annotated[float, Meaning("length of an iteration", "s", above=0)]
_Joules = Annotated[float, Meaning("energy of all GPUs", "J", above=0)]


class MeasuredIteration(NamedTuple):
    """Length and energy of an iteration."""

    time: _Seconds
    energy: _Joules


class _EnvPipeIteration(NamedTuple):
    iteration_time: _Seconds
    energy: _Joules


class _ZeusIteration(NamedTuple):
    partition_method: str
    time: _Seconds
    energy: _Joules


_Iteration = TypeVar("_Iteration")


def _iterations(path: Path, kind: type[_Iteration], **only: str) -> list[_Iteration]:
    """Return the rows of a file with some values; none where it is missing."""
    if not path.is_file():
        return []
    wanted = {column: [value] for column, value in only.items()}
    records = csv_records(path, "iteration", DataError, kind, others=True, only=wanted)
    return [row for _, row in records]


def envpipe_energy_j(folder: Path, workload: Workload, num_micro_batches: int) -> float | None:
    """Return the energy of EnvPipe's iteration in the emulation; None where it is not in the folder."""
    iterations = _iterations(
        folder / ENVPIPE_FILE,
        _EnvPipeIteration,
        model=workload.authors_model,
        device=_ENVPIPE_GPU[workload.gpu],
        num_microbatches=str(num_micro_batches),
    )
    return iterations[0].energy if iterations else None


def measured_frontier(folder: Path, workload: Workload) -> list[MeasuredIteration]:
    """Return the measured iterations of Perseus's plans by increasing time; none without their file.

    The first two runs of a file are at the highest clocks, and are left out.
    """
    path = folder / workload.profile.replace(".csv", ".measured_frontier.csv")
    return sorted(_iterations(path, MeasuredIteration)[2:]) if workload.profile else []


def measured_zeus(folder: Path, workload: Workload) -> dict[str, list[MeasuredIteration]]:
    """Return measured iterations of ZeusGlobal and ZeusPerStage, from the highest power limit downwards.

    Of a model that was divided in several ways, the first division of the file counts, the most even one.
    """
    wanted = {"model_name": workload.authors_model, "pp": workload.num_stages, "tp": workload.tensor_parallel}
    below, by_method = folder / "published" / "zeus" / "csv" / workload.gpu.upper(), {}
    for name, file in _ZEUS_FILES.items():
        rows = _iterations(below / file, _ZeusIteration, **{key: str(value) for key, value in wanted.items()})
        same = [row for row in rows if row.partition_method == rows[0].partition_method]
        by_method[name] = [MeasuredIteration(row.time, row.energy) for row in same]
    return by_method
