"""The smallest case of every part reaches what it must, and measures see what is worse."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.benchmarks.frame import GROUPS, Case, Row, measured, read_cases
from experiments.benchmarks.inputs.clock_tasks import made_up, synthetic_profile
from experiments.benchmarks.inputs.loads import JOBS_THAT_END, PASSED_S, load, random_throughputs
from experiments.benchmarks.measures import cluster, peers
from experiments.benchmarks.measures.frontier import orders, shares_above
from experiments.benchmarks.measures.peers import draw
from experiments.benchmarks.measures.planners import random_chain
from experiments.benchmarks.measures.runtime import resident
from experiments.benchmarks.others.recurrence import min_time_ms
from experiments.benchmarks.others.torch_schedules import SHIPPED, torch_schedule
from experiments.reproduce.gavel.options import cluster_of
from placements.planners.pipedream.plan import Level
from placements.planners.pipedream.planner import best_plan
from placements.shapes import v_shape
from schedsearch.cluster.demand import Configuration, Demand
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.validate import validate

TIMES = re.compile(r"\w*_(s|us) |cpu|wall")
"""Conditions on times: they depend on the machine, and on what else it does."""

FEWER = {"rounds": 1, "number": 40}
"""Less of what only makes times more certain."""

QUICK = [case for group in GROUPS for case in read_cases(group) if case.is_quick]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: f"{case.part}-{case.name}")
def test_the_smallest_cases_reach_what_they_must(case: Case) -> None:
    fewer = {name: value for name, value in FEWER.items() if name in case.arguments}
    row = measured(replace(case, arguments={**case.arguments, **fewer}))
    assert all(TIMES.match(condition) for condition in row.missed), row
    if not row.skipped:
        assert row.figures["cpu_s"] >= 0 and len(row.figures) > 1


def test_orders_are_measured() -> None:
    found = orders(shape="v_shape", num_devices=2, micro_batches=2, slowdown=1.05, seeds=1)
    assert found["min_gain"] >= 0 and found["over_deadline"] <= 1 + 1e-9


def test_the_memory_of_processes_is_measured() -> None:
    model = {"name": "gpt", "hidden_size": 8, "sequence_length": 3, "micro_batch_size": 1}
    sizes = {"num_layers": 2, "num_heads": 2, "optimizer": "adamw"}
    found = resident(model=model | sizes, num_stages=2, micro_batches=2, launcher="fork")
    assert 0 < found["least"] <= found["most"]


def test_a_longer_answer_of_ours_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "peak_memory", lambda schedule: [1] * schedule.placement.num_devices)
    found = peers.torch_schedule(torch_name="GPipe", devices=2, micro_batches=4, rounds=1)
    assert (found["makespan"], found["peer_makespan"], found["over_peer"]) == (24, 15, 1.6)


@pytest.mark.parametrize("name", SHIPPED)
def test_schedules_of_torch_are_valid_and_of_its_own_stages(name: str) -> None:
    schedule = validate(torch_schedule(name, 4, 8))
    assert sum(block.kind.value == "F" for block in schedule.placement.blocks) == 4 * SHIPPED[name]


@pytest.mark.parametrize("seed", range(4))
def test_the_printed_recurrence_finds_the_planners_time(seed: int) -> None:
    graph, level = random_chain(9, seed), Level(6, 1.25)
    assert min_time_ms(graph, level) == pytest.approx(best_plan(graph, [level]).time_ms, rel=1e-12)


def test_a_figure_is_drawn_of_tasks_of_several_sizes(tmp_path: Path) -> None:
    def row(task: str, size: str, number: int) -> Row:
        return Row("part", "case", {"task": task, size: number, "cpu_s": 1.5, "peer_cpu_s": 70.0})

    draw(
        [*(row("one", "devices", size) for size in (4, 2, 8)), row("other", "blocks", 3)],
        tmp_path / "peers.json",
    )
    assert {path.name for path in tmp_path.iterdir()} == {"peers_devices.png", "peers_devices.svg"}


def test_a_better_plan_of_another_is_seen() -> None:
    """Our own plans with a percent less of the energy stand for the other's."""
    task = made_up(shape="v_shape", num_devices=2, micro_batches=3, clocks=8, seed=1, noise=0.01)
    own = np.array([(plan.time_ms, plan.energy_mj) for plan in task.frontier(num_plans=5).plans])
    assert shares_above(task, own)["min_more"] == pytest.approx(0, abs=1e-6)
    assert shares_above(task, own * (1, 0.99))["min_more"] == pytest.approx(-100 / 99, rel=0.1)


def test_the_made_up_profile_is_the_same_every_time() -> None:
    one, same, other = (synthetic_profile(v_shape(3), 9, seed, noise=0.01) for seed in (4, 4, 5))
    assert one == same
    assert one.points != other.points
    times = [point.time_ms for point in one.points["F0"]]
    assert times[0] > times[-1]


def test_jobs_come_and_end_between_moments() -> None:
    moments = load(random_throughputs(20, 0), cluster_of(8), 20, 3, seed=0).moments
    for before, after in itertools.pairwise(moments):
        left = {active.name: active for active in before}
        stayed = [active for active in after if active.name in left]
        assert len(after) == len(before) == len(stayed) + JOBS_THAT_END
        for active in stayed:
            assert 0 < active.steps_left <= left[active.name].steps_left
            assert active.waited_s == left[active.name].waited_s + PASSED_S


def test_terms_are_as_computed_by_hand() -> None:
    """The dissertation's example of max-min fairness, with 1000 steps each (Sec. 5.4.1)."""
    rates = [[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]]
    jobs = [ActiveJob(Job(str(number), "type", 1000.0), 1000.0) for number in range(3)]
    gpus = GpuCluster({"v100": 1, "k80": 1}, {"v100": 2.0, "k80": 1.0})
    configurations = [
        Configuration((job,), gpu_type, 1, (rate,))
        for job, row in enumerate(rates)
        for gpu_type, rate in zip(gpus.gpu_types, row, strict=True)
    ]
    demand = Demand.of(gpus, jobs, configurations)
    terms = cluster.terms_of(demand)
    assert terms["proportional_steps_per_s"].tolist() == [25, 8, 75]
    assert terms["isolated_s"].tolist() == pytest.approx([60, 187.5, 20])
    assert terms["dollars_per_hour"].tolist() == [2, 1]
    shares = cluster.shares_of(policy_of("las").allocate(demand))
    least = ((rates * shares).sum(axis=1) / terms["proportional_steps_per_s"]).min()
    assert least == pytest.approx(8 / 11)


@pytest.mark.parametrize("policy", cluster.PROGRAMS)
def test_cvxpy_is_compared_with_where_it_is_installed(policy: str) -> None:
    pytest.importorskip("cvxpy")
    found = cluster.allocation(policy=policy, jobs=20, throughputs="random")
    assert found["over_cvxpy"] == pytest.approx(1.0, rel=1e-4)
