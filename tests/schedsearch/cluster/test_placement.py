"""Jobs whose GPUs are in several servers (dissertation, Sec. 5.3.1): by hand, and simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from cluster.small_clusters import drawn_jobs, drawn_throughputs

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.registry import POLICIES, policy_of
from schedsearch.cluster.rounds import Assignment, RoundScheduler
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs

Rates = Mapping[str, Mapping[str, tuple[float, float]]]

RATES: Rates = {
    "chatty": {"v100": (8.0, 1.0), "k80": (4.0, 2.0)},
    "quiet": {"v100": (8.0, 7.0), "k80": (4.0, 4.0)},
}
"""Steps per second in as few servers as can be, and with each GPU in its own."""

SPLIT = GpuCluster({"v100": 2, "k80": 2}, gpus_per_server={"v100": 1, "k80": 2})
"""V100s that stand alone, and K80s in pairs."""


def placed_throughputs(rates: Rates, gpus: tuple[int, ...] = (2,)) -> Throughputs:
    def table(which: int) -> dict[tuple[str, int], dict[str, tuple[JobOperatingPoint, ...]]]:
        return {
            (job_type, count): {name: (JobOperatingPoint(rate[which]),) for name, rate in row.items()}
            for job_type, row in rates.items()
            for count in gpus
        }

    return Throughputs(table(0), unconsolidated=Throughputs(table(1)))


def rates_of(demand: Demand) -> list[tuple[str, bool, float]]:
    configs = demand.configurations
    types = [demand.cluster.gpu_types[number] for number in configs.gpu_type]
    return [*zip(types, configs.is_unconsolidated.tolist(), configs.steps_per_s[:, 0].tolist(), strict=True)]


def test_a_placement_is_unconsolidated_where_it_spans_more_servers_than_it_needs() -> None:
    cluster = GpuCluster({"v100": 12, "k80": 4}, gpus_per_server={"v100": 4})
    spans = {(0, 1): False, (3, 4): True, (0, 1, 2, 3, 4, 5): False, (0, 1, 2, 4, 5, 8): True, (5,): False}
    assert {ids: cluster.is_unconsolidated("v100", ids) for ids in spans} == spans
    assert cluster.is_unconsolidated("k80", (0, 1))


def test_a_demand_has_a_configuration_for_each_placement() -> None:
    jobs = [ActiveJob(Job("a", "chatty", 10.0, 2), 10.0)]
    throughputs = placed_throughputs(RATES)
    assert rates_of(throughputs.demand(SPLIT, jobs)) == [("v100", True, 1.0), ("k80", False, 4.0)]
    servers_of_two = GpuCluster({"v100": 4}, gpus_per_server={"v100": 2})
    assert rates_of(throughputs.demand(servers_of_two, jobs)) == [("v100", False, 8.0), ("v100", True, 1.0)]
    ignored = Throughputs(throughputs.alone)
    assert rates_of(ignored.demand(SPLIT, jobs)) == [("v100", False, 8.0), ("k80", False, 4.0)]


def allocation_on_servers_of_four(throughputs: Throughputs) -> tuple[GpuCluster, Allocation]:
    """Return an allocation of jobs of 3, 3 and 2 GPUs that gives each all the time, consolidated."""
    cluster = GpuCluster({"v100": 8}, gpus_per_server={"v100": 4})
    names = {"a": ("quiet", 3), "b": ("quiet", 3), "c": ("chatty", 2)}
    jobs = [ActiveJob(Job(name, kind, 1000.0, gpus), 1000.0) for name, (kind, gpus) in names.items()]
    demand = throughputs.demand(cluster, jobs)
    return cluster, Allocation(demand, (~demand.configurations.is_unconsolidated).astype(float), 0.0)


def one_round(throughputs: Throughputs) -> tuple[RoundScheduler, list[Assignment]]:
    cluster, allocation = allocation_on_servers_of_four(throughputs)
    rounds = RoundScheduler(cluster, 360.0, sees_servers=True)
    rounds.decide(allocation, 0.0)
    return rounds, rounds.next_round()


def test_who_finds_no_room_in_a_server_runs_at_its_lower_throughput_or_waits() -> None:
    throughputs = placed_throughputs(RATES, (2, 3))
    rounds, assigned = one_round(throughputs)
    placed = {run.jobs[0]: run.gpu_ids for run in assigned}
    assert placed == {"a": (0, 1, 2), "b": (4, 5, 6), "c": (3, 7)}
    speeds = rounds.candidates.steps_per_s[:, 0]
    assert [float(speeds[run.placed_as]) for run in assigned] == [8.0, 8.0, 1.0]
    assert [float(speeds[run.candidate]) for run in assigned] == [8.0, 8.0, 8.0]  # whose time is counted
    assert throughputs.unconsolidated is not None
    lacking = {key: row for key, row in throughputs.unconsolidated.alone.items() if key[0] == "quiet"}
    _, assigned = one_round(Throughputs(throughputs.alone, unconsolidated=Throughputs(lacking)))
    assert [run.jobs for run in assigned] == [("a",), ("b",)]


def test_a_configuration_on_several_servers_takes_a_gpu_of_each_in_turn() -> None:
    """The GPUs left for c are in one server, so c has the throughput of one server."""
    cluster, allocation = allocation_on_servers_of_four(placed_throughputs(RATES, (2, 3)))
    is_apart = allocation.demand.configurations.is_unconsolidated
    rounds = RoundScheduler(cluster, 360.0, sees_servers=True)
    rounds.decide(Allocation(allocation.demand, is_apart.astype(float), 0.0), 0.0)
    for _ in range(2):
        assigned = rounds.next_round()
        placed = {run.jobs[0]: run.gpu_ids for run in assigned}
        assert placed == {"a": (0, 1, 4), "b": (2, 3, 5), "c": (6, 7)}
        speeds = rounds.candidates.steps_per_s[:, 0]
        assert [float(speeds[run.placed_as]) for run in assigned] == [7.0, 7.0, 8.0]
    assert all(all(run.renewed) for run in assigned)


def test_a_policy_that_knows_servers_puts_the_chatty_job_where_its_gpus_share_one() -> None:
    """Chatty makes 4 steps/s on the K80s and quiet 7 on the V100s, so both end at 1000 s."""
    throughputs = placed_throughputs(RATES)
    jobs = [Job("chatty", "chatty", 4000.0, 2), Job("quiet", "quiet", 7000.0, 2)]
    options = SimulationOptions(round_s=100.0, reset_s=0.0, types_in_turn=False)
    outcome = simulate_cluster(jobs, SPLIT, throughputs, policy_of("las"), options)
    assert [job.finish_s for job in outcome.jobs] == [1000.0, 1000.0]


@pytest.mark.parametrize("name", [policy for policy in POLICIES if policy != "allox"])
def test_every_job_runs_at_the_throughput_of_the_servers_that_it_is_in(name: str) -> None:
    random = Random(name)
    cluster = GpuCluster({"x": 8, "y": 6, "z": 5}, {"x": 3.0, "y": 2.0, "z": 1.0}, {"x": 4, "z": 2})
    near = drawn_throughputs(random, cluster.gpu_types, pairs=True)
    alone = {
        key: {gpu_type: (points[0]._replace(steps_per_s=points[0].steps_per_s * random.uniform(0.1, 1.1)),)}
        for key, row in near.alone.items()
        for gpu_type, points in row.items()
    }
    throughputs = replace(near, unconsolidated=Throughputs({**near.alone, **alone}, near.pairs))
    jobs = drawn_jobs(random, 25, 4)
    options = SimulationOptions(types_in_turn=random.random() < 0.5, records_rounds=True)
    outcome = simulate_cluster(jobs, cluster, throughputs, policy_of(name), options)
    assert all(job.finish_s > 0 for job in outcome.jobs)
    apart = throughputs.unconsolidated
    assert apart is not None
    placements = set()
    for run in (run for turn in outcome.recorded for run in turn.runs):
        gpu_type, who = cluster.gpu_types[run.gpu_type], [outcome.jobs[job].job for job in run.jobs]
        is_apart = cluster.is_unconsolidated(gpu_type, run.gpu_ids)
        placements.add(is_apart)
        table = apart if is_apart else near
        if len(who) == 2:
            assert run.steps_per_s == table.pair(who[0].type, who[1].type, len(run.gpu_ids))[gpu_type]
        else:
            assert run.steps_per_s == (table.rate(who[0].type, len(run.gpu_ids), gpu_type),)
    assert placements == {False, True} or name != "las"
