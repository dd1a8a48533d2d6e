"""cvxpy's answers to the decisions of a load, from a process of its own.

cvxpy is optional: `reason_to_skip` says why there is no comparison.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from experiments.benchmarks.cluster import cvxpy_programs
from experiments.benchmarks.cluster.cvxpy_programs import DEFAULT
from experiments.benchmarks.cluster.terms import Terms
from experiments.benchmarks.comparison import missing
from schedsearch.cluster.demand import FloatArray

VERSION = "1.9.3"
"""The version that the comparison is for."""

SOLVERS = {
    "las": (DEFAULT, "HIGHS", "CLARABEL"),
    "finish_time_fairness": (DEFAULT,),
    "makespan": (DEFAULT, "HIGHS", "CLARABEL"),
    "min_cost": (DEFAULT, "HIGHS", "CLARABEL"),
}
"""Of each policy; the program of finish-time fairness is not linear."""

TIME_LIMIT_S = 600.0
"""Wall-clock seconds of one process."""


@dataclass(frozen=True, eq=False)
class Answers:
    """One solver of cvxpy: shares, of shape (moments, jobs, types), and CPU seconds by moment."""

    solver: str
    shares: FloatArray
    cpu_s: tuple[float, ...]


def reason_to_skip() -> str:
    """Return why cvxpy cannot be compared with; empty where it can."""
    return missing("cvxpy", VERSION)


def answers(policy: str, solver: str, moments: Sequence[Terms]) -> Answers:
    """Return cvxpy's answers at each moment.

    Raises:
        subprocess.CalledProcessError: It failed; its words are on the screen.
    """
    plain = [asdict(terms) for terms in moments]
    stacked = {name: np.array([each[name] for each in plain]) for name in plain[0]}
    with TemporaryDirectory() as folder:
        read, written = Path(folder) / "terms.npz", Path(folder) / "answers.npz"
        np.savez(read, allow_pickle=False, **stacked)
        command = [sys.executable, "-m", cvxpy_programs.__name__, policy, solver, str(read), str(written)]
        subprocess.run(command, check=True, timeout=TIME_LIMIT_S)
        with np.load(written) as file:
            return Answers(solver, file["shares"], tuple(file["seconds"].tolist()))
