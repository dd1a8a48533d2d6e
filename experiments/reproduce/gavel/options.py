"""Options of items that simulate a cluster, and Gavel's data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from experiments.config.options import OptionError
from experiments.reproduce.item import CaseOptions
from placements.forms.meaning import Verbatim, option
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.inputs.throughput_file import read_job_types, read_throughputs
from schedsearch.cluster.throughputs import Throughputs

THROUGHPUTS = "simulation_throughputs.json"
PHYSICAL_THROUGHPUTS = "physical_cluster_throughputs.json"
JOB_TYPES = "job_types.csv"
"""Files in the folder of Gavel's data; the last has the types from which jobs are drawn."""

DOLLARS_PER_HOUR = {"v100": 2.48, "p100": 1.46, "k80": 0.45}
"""Google Cloud's prices of one GPU on demand, us-central1, 2020; the dissertation prints none."""


@dataclass(frozen=True)
class SeedOptions(CaseOptions):
    """Options of an item with a case for each seed."""

    data: Verbatim | None = option(
        None,
        "folder of Gavel's throughputs, job_types.csv, and traces where the item is of the physical cluster",
    )
    seeds: tuple[int, ...] = option((0, 1, 2), "seeds of what is drawn; each is a case", min=0)

    def file(self, name: str) -> Path:
        """Return the path of a file of Gavel's data.

        Raises:
            OptionError: The folder is not given, or has no such file.
        """
        if not self.data:
            raise OptionError(
                f"data: has no value; give the folder of Gavel's {THROUGHPUTS}, as in data=FOLDER"
            )
        path = Path(self.data) / name
        if not path.exists():
            raise OptionError(f"data: {self.data} has no {name}; give the folder of Gavel's data")
        return path

    def cases(self, workloads: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Return the cases by name: each workload with each seed."""
        return {f"{workload}_seed{seed}": (workload, seed) for workload in workloads for seed in self.seeds}


@dataclass(frozen=True)
class TraceOptions(SeedOptions):
    """Options of an item that simulates a cluster; a fifth of the jobs counts."""

    jobs: int = option(5000, "number of jobs that are simulated with each seed", min=5)


@dataclass(frozen=True)
class ShorterTraceOptions(TraceOptions):
    """Options of an item with fewer jobs by default."""

    jobs: int = option(500, "number of jobs that are simulated with each seed", min=5)


@lru_cache(maxsize=2)
def gavel_throughputs(path: Path) -> Throughputs:
    """Return Gavel's measured throughputs."""
    return read_throughputs(path)


@lru_cache(maxsize=1)
def gavel_types(path: Path) -> Mapping[str, bool]:
    """Return whether each type of job may run on more than one GPU."""
    return read_job_types(path)


def cluster_of(gpus_per_type: int) -> GpuCluster:
    """Return a cluster of as many V100s as P100s and K80s, with prices."""
    return GpuCluster(dict.fromkeys(DOLLARS_PER_HOUR, gpus_per_type), DOLLARS_PER_HOUR)
