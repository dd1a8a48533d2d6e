"""Simulations: Gavel's published numbers, small ones by hand, and drawn ones replayed by `check_outcome`."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from cluster.small_clusters import (
    GAVEL,
    Drawn,
    OnFirstType,
    drawn_jobs,
    drawn_throughputs,
    gavel_throughputs,
    needs_gavel,
    throughputs_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line_errors import raises_line
from outcome_check import check_outcome

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.generator import GeneratorOptions, generated
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.inputs.throughput_file import read_job_types
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import Outcome
from schedsearch.cluster.simulator.simulation import ClusterProgress, simulate_cluster

ONE = GpuCluster({"v100": 1})
RATE_1 = throughputs_of({"a": {"v100": 1.0, "k80": 0.5}}, (1, 2))
KEPT = SimulationOptions(records_rounds=True)


def jobs_of(*arrivals_and_steps: tuple[float, float], **more: object) -> list[Job]:
    return [
        Job(str(number), "a", steps, arrival_s=arrival_s, **more)  # type: ignore[arg-type]
        for number, (arrival_s, steps) in enumerate(arrivals_and_steps)
    ]


def on_first(jobs: list[Job], cluster: GpuCluster = ONE, options: SimulationOptions = KEPT) -> Outcome:
    outcome = simulate_cluster(jobs, cluster, RATE_1, OnFirstType(), options)
    check_outcome(outcome, RATE_1, options)
    return outcome


def oracle() -> list[dict[str, str]]:
    if not GAVEL.is_dir():
        return []
    with (GAVEL / "jct_oracle.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["seed"] == "42"]


@needs_gavel
@pytest.mark.parametrize("row", oracle(), ids=lambda row: f"{row['seed']}-{row['lam_s']}")
def test_gavels_published_completion_times(row: dict[str, str]) -> None:
    """At these loads every job runs on a V100, so the policy does not matter."""
    throughputs = gavel_throughputs()
    drawn = GeneratorOptions(int(row["seed"]), float(row["lam_s"]))
    outcome = simulate_cluster(
        generated(read_job_types(GAVEL / "job_types.csv"), throughputs, drawn),
        GpuCluster({"v100": int(row["v100"]), "p100": int(row["p100"]), "k80": int(row["k80"])}),
        throughputs,
        policy_of(row["policy"]),
        SimulationOptions(window=(4000, 5000), skips_to_arrivals=True),
    )
    assert f"{outcome.figures['average_jct_s']:.6f}" == row["average_jct_s"]
    assert outcome.figures["utilisation"] == pytest.approx(float(row["utilization"]), abs=2e-5)


def test_two_jobs_on_one_gpu_by_hand() -> None:
    """They take turns: 0 runs rounds 0, 2, 4 and 1 rounds 1, 3; then each does its last steps."""
    outcome = on_first(jobs_of((0.0, 1000.0), (0.0, 500.0)))
    assert [job.finish_s for job in outcome.jobs] == [360 * 3 + 140 + 280, 360 * 3 + 140]
    assert outcome.figures["average_jct_s"] == (1500 + 1220) / 2
    assert outcome.figures["makespan_s"] == 1500
    assert outcome.figures["utilisation"] == 1
    assert outcome.rounds.start_s.tolist() == [0, 360, 720, 1080, 1220]
    assert outcome.rounds.active_jobs.tolist() == [2, 2, 2, 2, 1]
    assert outcome.rounds.waiting_jobs.tolist() == [1, 1, 1, 1, 0]
    assert outcome.jobs[0].starts == 3
    assert outcome.jobs[0].preemptions == 2
    assert not outcome.missing


def test_an_arrival_waits_for_the_next_round_and_the_next_decision() -> None:
    """The decision at 0 is not followed by a wait (Gavel's rule), the one at 360 s by 1920 s."""
    jobs = jobs_of((0.0, 3000.0), (100.0, 10.0), (400.0, 10.0))
    outcome = on_first(jobs, GpuCluster({"v100": 3}))
    assert outcome.decided_s.tolist() == [0.0, 360.0, 2520.0]
    assert outcome.jobs[1].finish_s == 370
    assert outcome.jobs[2].first_start_s == 2520
    early = on_first(jobs, GpuCluster({"v100": 3}), replace(KEPT, reset_s=0.0))
    assert early.jobs[2].first_start_s == 720


@pytest.mark.parametrize(("policy", "next_s"), [("las", 60_000.0), ("isolated", 9e5), ("water_filling", 9e5)])
def test_a_job_in_an_idle_cluster_waits_for_the_next_decision_not_for_the_next_arrival(
    policy: str, next_s: float
) -> None:
    """Job 1 needs both V100s and cannot run on the K80; it came a second after the decision at 50 000 s."""
    rates = {"small": {"v100": 10.0, "k80": 2.0}, "big": {"v100": 16.0, "k80": 0.0}}
    throughputs = throughputs_of(rates, (1, 2))
    jobs = [
        Job("0", "small", 3600.0, arrival_s=50_000.0),
        Job("1", "big", 7200.0, 2, arrival_s=50_001.0),
        Job("2", "small", 100.0, arrival_s=next_s),
    ]
    outcome = simulate_cluster(jobs, GpuCluster({"v100": 2, "k80": 1}), throughputs, policy_of(policy), KEPT)
    check_outcome(outcome, throughputs, KEPT)
    assert outcome.jobs[1].first_start_s == 50_000 + KEPT.reset_s
    as_gavel = replace(KEPT, skips_to_arrivals=True)
    outcome = simulate_cluster(
        jobs, GpuCluster({"v100": 2, "k80": 1}), throughputs, policy_of(policy), as_gavel
    )
    assert outcome.jobs[1].first_start_s >= next_s


def test_the_isolated_split_takes_the_types_in_gavels_order() -> None:
    """Its own simulator ends the jobs at these times: as no throughput counts, it draws the types' order."""
    throughputs = throughputs_of(
        {
            "lm": {"v100": 40.0, "p100": 33.0, "k80": 12.5},
            "resnet": {"v100": 24.0, "p100": 15.5, "k80": 7.0},
            "rec": {"v100": 9.0, "p100": 2.5, "k80": 1.25},
        }
    )
    types = "lm lm resnet rec lm rec lm rec rec resnet lm rec"
    steps = (314889, 175815, 51627, 51815, 125942, 53364, 348158, 54545, 10175, 135283, 172018, 23063)
    arrivals_s = (0.0, 2332.744, 4650.348, 5511.051, 5758.261, 5872.318, 6958.254, 8231.565, 9402.586)
    jobs = [
        Job(str(number), job_type, float(count), arrival_s=arrival_s)
        for number, (job_type, count, arrival_s) in enumerate(
            zip(types.split(), steps, (*arrivals_s, 9446.151, 11252.831, 13470.272), strict=True)
        )
    ]
    cluster = GpuCluster({"v100": 2, "p100": 1, "k80": 2})
    outcome = simulate_cluster(jobs, cluster, throughputs, policy_of("isolated"), SimulationOptions())
    ends_s = (13714.32, 10335.0, 9463.62, 22767.22, 12855.05, 22679.33, 25560.95, 24660.56, 14820.56)
    expected_s = [*ends_s, 23224.29, 22124.95, 22122.56]
    assert [job.finish_s for job in outcome.jobs] == pytest.approx(expected_s, abs=0.011)


def test_a_round_ends_with_its_last_job_and_idle_time_is_skipped() -> None:
    outcome = on_first(jobs_of((0.0, 100.0), (5000.0, 50.0), (5001.0, 20.0)), GpuCluster({"v100": 2}))
    assert [job.finish_s for job in outcome.jobs] == [100.0, 5050.0, 5070.0]
    assert outcome.decided_s.tolist() == [0.0, 100.0, 5000.0, 5050.0]  # the last as nobody else comes


def test_whole_steps_only_but_long_steps_in_parts() -> None:
    slow = throughputs_of({"a": {"v100": 1 / 100}, "b": {"v100": 1 / 1000}})
    outcome = simulate_cluster([Job("0", "a", 4.0)], ONE, slow, OnFirstType(), KEPT)
    assert outcome.rounds.start_s.tolist() == [0.0, 300.0]  # 3 steps fit in 360 s
    outcome = simulate_cluster([Job("0", "b", 2.0)], ONE, slow, OnFirstType(), KEPT)
    assert outcome.figures["average_jct_s"] == pytest.approx(2000)
    check_outcome(outcome, slow, KEPT)


def test_money_energy_and_shared_gpus() -> None:
    cluster = GpuCluster({"v100": 2}, {"v100": 3.6}, idle_power_w={"v100": 100.0})
    outcome = on_first(jobs_of((0.0, 1000.0), slo_s=900.0), cluster)
    assert outcome.figures["dollars"] == pytest.approx(1.0)
    assert outcome.figures["kwh"] == pytest.approx(100 * 1000 / 3.6e6)
    assert (outcome.figures["slo_violations"], outcome.figures["slo_violation_share"]) == (1, 1.0)
    assert outcome.figures["utilisation"] == 0.5


def test_finish_time_ratio_by_hand() -> None:
    """On its half of a GPU a job takes twice as long; job 1 has all of it in its last round."""
    outcome = on_first(jobs_of((0.0, 3600.0), (0.0, 3600.0)))
    assert [job.jct_s for job in outcome.jobs] == [6840, 7200]
    assert [job.isolated_s for job in outcome.jobs] == [7200, 2 * 3240 + 360]
    assert outcome.figures["average_finish_time_ratio"] == pytest.approx((6840 / 7200 + 7200 / 6840) / 2)


def test_a_window_ends_the_run_and_bounds_the_averages() -> None:
    endless = generated({"a": False}, RATE_1, GeneratorOptions(lam_s=100.0, durations_h=(50 / 3600,)))
    outcome = simulate_cluster(endless, ONE, RATE_1, OnFirstType(), replace(KEPT, window=(5, 8), reset_s=0.0))
    assert len(outcome.measured) == 3
    assert outcome.figures["average_jct_s"] == pytest.approx(
        np.mean([job.jct_s for job in outcome.jobs[5:8]])
    )
    assert all(job.is_done for job in outcome.measured)


@dataclass
class Nothing:
    name: str = "nothing"
    shares_space: bool = False
    fills_idle_gpus: bool = False

    def allocate(self, demand: Demand) -> Allocation:
        return Allocation(demand, np.zeros(len(demand.configurations)), 0.0)


def test_a_policy_that_gives_nobody_time_is_said() -> None:
    outcome = simulate_cluster(jobs_of((0.0, 1.0), (10.0, 1.0)), ONE, RATE_1, Nothing())
    assert outcome.reason
    assert outcome.missing.startswith("the policy gives no time to job 0, nor to any other: 2 of 2 jobs")
    assert math.isnan(outcome.figures["average_jct_s"])


def test_idle_gpus_run_what_has_no_share_unless_they_must_not() -> None:
    """With types in turn a first type that idles takes a job that another type has a share of (Gavel)."""
    cluster = GpuCluster({"k80": 1, "v100": 1})

    @dataclass
    class OnV100(OnFirstType):
        def allocate(self, demand: Demand) -> Allocation:
            return Allocation(demand, (demand.configurations.gpu_type == 1).astype(float), 0.0)

    for options, jct_s in ((SimulationOptions(), 200.0), (SimulationOptions(types_in_turn=False), 100.0)):
        outcome = simulate_cluster(jobs_of((0.0, 100.0)), cluster, RATE_1, OnV100(), options)
        assert outcome.figures["average_jct_s"] == jct_s


def test_stopping_in_time_says_what_is_missing() -> None:
    jobs = jobs_of((0.0, 1000.0), (9000.0, 1.0), slo_s=300.0)
    outcome = on_first(jobs, options=replace(KEPT, stop_at_s=500.0))
    assert outcome.end_s == 720
    assert outcome.missing == (
        "stopped at stop_at_s=500.0: 2 of 2 jobs are not done at 0.2 h, 1 of them have not arrived; averages "
        "are over the done jobs"
    )
    assert outcome.figures["slo_violations"] == 1


def test_progress() -> None:
    seen: list[ClusterProgress] = []
    options = SimulationOptions()
    outcome = simulate_cluster(
        jobs_of((0.0, 500.0), (0.0, 90.0)), ONE, RATE_1, OnFirstType(), options, seen.append
    )
    assert seen[0] == ClusterProgress(0, 2, 0.0, 0)
    assert seen[-1].jobs_done == 2
    assert outcome.decided_s.tolist() == [0.0, 450.0]


@pytest.mark.parametrize(
    ("jobs", "options", "message"),
    [
        (jobs_of((0.0, 1.0)), {"window": (0, 2)}, r"window: \[0, 2\] is beyond the trace, which has 1 jobs"),
        (jobs_of((5.0, 1.0), (4.0, 1.0)), {}, "job 1: arrival_s: 4.0 is before"),
        (jobs_of((0.0, 1.0)) * 2, {}, "job 0 is there twice"),
        (
            jobs_of((0.0, 1.0), scale_factor=3),
            {},
            "job 0: scale_factor: 3 GPUs are more than any type has; v100",
        ),
        ([Job("x", "b", 1.0)], {}, "job x: 'b' on 1 GPUs has no throughput on v100"),
    ],
)
def test_wrong_input_is_one_line(jobs: list[Job], options: dict[str, object], message: str) -> None:
    for trace in (jobs, iter(jobs)):
        with raises_line(ClusterError, match=message):
            simulate_cluster(trace, ONE, RATE_1, OnFirstType(), SimulationOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"round_s": 0.0}, "round_s: 0.0 is not a number above 0; give seconds"),
        ({"reset_s": -1.0}, "reset_s: -1.0"),
        ({"checkpoint_s": 200.0, "restart_s": 160.0}, "leave nothing of a round"),
    ],
)
def test_wrong_options_are_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        SimulationOptions(**options)  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from([(0.0, 0.0), (30.0, 7.5)]))
def test_drawn_simulations_keep_all_rules(
    seed: int, shares_space: bool, types_in_turn: bool, costs_s: tuple[float, float]
) -> None:
    random = Random(seed)
    names = ("v100", "k80", "p4")[: random.randint(1, 3)]
    workers = {name: random.randint(1, 5) for name in names}
    cap_w = random.choice((math.inf, 600.0))
    cluster = GpuCluster(workers, {"v100": 2.0}, {"v100": random.choice((1, 2, 4))}, cap_w)
    throughputs = drawn_throughputs(random, names, pairs=shares_space)
    jobs = drawn_jobs(random, random.randint(1, 15), workers["v100"])
    options = SimulationOptions(
        seed=seed,
        reset_s=random.choice((0.0, 1920.0)),
        types_in_turn=types_in_turn,
        stop_at_s=1e5,
        checkpoint_s=costs_s[0],
        restart_s=costs_s[1],
        records_rounds=True,
    )
    outcome = simulate_cluster(jobs, cluster, throughputs, Drawn(seed, shares_space), options)
    check_outcome(outcome, throughputs, options)
    assert outcome.reason or not outcome.missing
    assert (outcome.rounds.busy_gpus <= np.array([*workers.values()])).all()
    assert (outcome.rounds.waiting_jobs >= 0).all()
