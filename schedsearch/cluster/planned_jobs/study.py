"""One trace on one cluster under several policies: energy, money, completion times, SLOs.

Each is held against a baseline that is named: a run at the highest clocks with the same power cap. Energy is
counted until the same time for all, the end of the last run, with idle GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.planned_jobs.energy_over_time import EnergyOverTime
from schedsearch.cluster.planned_jobs.planned_throughputs import PlannedThroughputs
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.policies.spending.energy import LeastCost, LeastEnergy
from schedsearch.cluster.policies.water_filling import WaterFilling
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import Outcome
from schedsearch.cluster.simulator.simulation import simulate_cluster


@dataclass(frozen=True)
class StudyOptions:
    """The runs that are compared, and their options.

    Attributes:
        runs: Keys of `RUNS`; the baselines of those that have one are run too.
        power_cap_w: Power cap of the runs under a cap.
        dollars_per_kwh: Price of electricity.
        min_share: See `FloorRules`.
        spare_s: Likewise.
        round_s: Length of a round, after which jobs may change places.

    Raises:
        ClusterError: A run is not known.
    """

    runs: tuple[str, ...]
    power_cap_w: float
    dollars_per_kwh: float = 0.1
    min_share: float = 0.9
    spare_s: float = 1800.0
    round_s: float = 360.0

    def __post_init__(self) -> None:
        """Check the names."""
        for name in self.runs:
            if name not in RUNS:
                raise ClusterError(f"runs: {name!r} is not known; use {', '.join(RUNS)}")


@dataclass(frozen=True)
class StudyCase:
    """One way to run the trace.

    Attributes:
        in_words: What it is.
        policy: Made anew for each run.
        has_clocks: It may use all points of the frontiers; otherwise only the highest clocks.
        is_capped: It keeps the power cap.
        baseline: What it is held against; "" for a baseline.
    """

    in_words: str
    policy: Callable[[StudyOptions], Policy]
    has_clocks: bool = True
    is_capped: bool = False
    baseline: str = "highest_clocks"


def _fair(_: StudyOptions) -> Policy:
    return WaterFilling()


RUNS: Mapping[str, StudyCase] = {
    "highest_clocks": StudyCase(
        "max-min fairness, all clocks at maximum", _fair, has_clocks=False, baseline=""
    ),
    "frontier": StudyCase("max-min fairness, with the plans of the frontiers", _fair),
    "highest_clocks_capped": StudyCase(
        "max-min fairness under the cap, all clocks at maximum",
        _fair,
        has_clocks=False,
        is_capped=True,
        baseline="",
    ),
    "frontier_capped": StudyCase(
        "max-min fairness under the cap, with the plans of the frontiers",
        _fair,
        is_capped=True,
        baseline="highest_clocks_capped",
    ),
    "least_energy": StudyCase(
        "least energy within SLOs and fair shares", lambda of: LeastEnergy(of.min_share, of.spare_s)
    ),
    "least_cost": StudyCase(
        "least dollars of GPUs and electricity, likewise",
        lambda of: LeastCost(of.min_share, of.spare_s, dollars_per_kwh=of.dollars_per_kwh),
    ),
}
"""The runs that can be compared, by name."""


@dataclass(frozen=True)
class StudyResult:
    """The outcome of the trace in each run.

    Attributes:
        options: What was compared.
        outcomes: Outcomes by the name of the run.
    """

    options: StudyOptions
    outcomes: Mapping[str, Outcome]

    @property
    def end_s(self) -> float:
        """Return the end of the last run, until which energy is counted."""
        return max(outcome.end_s for outcome in self.outcomes.values())

    def energy(self, name: str) -> EnergyOverTime:
        """Return what a run draws over time."""
        return EnergyOverTime(self.outcomes[name])

    def kw_by_hour(self) -> dict[str, list[float]]:
        """Return the mean power of each run in each hour of the day, in kW."""
        return {name: self.energy(name).kw_by_hour(self.end_s).tolist() for name in self.outcomes}

    def rows(self) -> list[dict[str, Any]]:
        """Return the figures of each run; savings are shares of the baseline's figure."""
        figures = {row["run"]: row for row in self._figures()}
        return [row | _savings(row, figures.get(row["baseline"])) for row in figures.values()]

    def _figures(self) -> list[dict[str, Any]]:
        rows = []
        for name, outcome in self.outcomes.items():
            energy, cap_w = self.energy(name), outcome.cluster.power_cap_w
            kwh = float(energy.kwh_until(self.end_s))
            rows.append(
                {
                    "run": name,
                    "in_words": RUNS[name].in_words,
                    "baseline": RUNS[name].baseline,
                    "kwh": kwh,
                    "dollars": outcome.dollars + self.options.dollars_per_kwh * kwh,
                    "average_jct_h": outcome.average_jct_s / 3600,
                    "makespan_h": outcome.makespan_s / 3600,
                    "utilisation": sum(outcome.busy_s.values()) / (outcome.cluster.num_gpus * self.end_s),
                    "slo_misses": outcome.slo_violations,
                    "jobs_with_slo": sum(math.isfinite(one.job.slo_s) for one in outcome.measured),
                    "jobs_done": sum(one.is_done for one in outcome.measured),
                    "peak_kw": energy.peak_w / 1e3,
                    "share_above_cap": energy.share_above(cap_w) if math.isfinite(cap_w) else None,
                }
            )
        return rows


def _savings(row: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> dict[str, float | None]:
    return {
        f"{name}_saved": None if baseline is None else 1 - row[name] / baseline[name]
        for name in ("kwh", "dollars", "average_jct_h")
    }


def study(
    table: PlannedThroughputs, jobs: Sequence[Job], cluster: GpuCluster, options: StudyOptions
) -> StudyResult:
    """Simulate the trace in each run.

    Args:
        table: Table of all models of the jobs.
        jobs: Jobs in the order of their arrival.
        cluster: Cluster without a cap; capped runs have that of the options.
        options: What is compared.

    Raises:
        ClusterError: There are no jobs, or a job cannot run.
        KeyboardInterrupt: From the keyboard.
    """
    if not jobs:
        raise ClusterError("trace: has no jobs; give more days or jobs_per_day")
    wanted = {*options.runs, *(RUNS[name].baseline for name in options.runs)}
    outcomes = {}
    for name, run in ((name, run) for name, run in RUNS.items() if name in wanted):
        outcomes[name] = simulate_cluster(
            jobs,
            replace(cluster, power_cap_w=options.power_cap_w) if run.is_capped else cluster,
            table.throughputs if run.has_clocks else table.highest_clocks,
            run.policy(options),
            SimulationOptions(round_s=options.round_s, reset_s=0.0, records_rounds=True),
        )
    return StudyResult(options, outcomes)
