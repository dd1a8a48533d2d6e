"""The dissertation's example (Sec. 5.4.1) as a file, a file with all fields, and wrong files."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from one_line_errors import raises_line

from schedsearch.cluster.demand import NOBODY, Demand
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.inputs.decision_file import Decision, read_decision
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.fairness import MaxMinFairness

ROWS = {"a": {"v100": 40, "k80": 10}, "b": {"v100": 12, "k80": 4}, "c": {"v100": 100, "k80": 50}}
PAIRS = [{"jobs": ["a", "b"], "v100": [20, 7.5]}, {"jobs": ["c", "a"], "v100": [60, 30], "k80": [30, 0]}]
JOBS = [{"name": name} for name in "abc"]
BASE: dict[str, Any] = {"workers": {"v100": 1, "k80": 1}, "jobs": JOBS, "throughputs": ROWS}
GAVEL = {
    "v100": {
        "('a', 1)": {"null": 40, "('b', 1)": [20, 7.5], "('c', 1)": [30, 60]},
        "('b', 1)": {"null": 12},
        "('c', 1)": {"null": 100},
    },
    "k80": {"('a', 1)": {"null": 10, "('c', 1)": [0, 30]}, "('b', 1)": {"null": 4}, "('c', 1)": {"null": 50}},
}


def read(tmp_path: Path, data: object) -> Decision:
    path = tmp_path / "decision.json"
    path.write_text(json.dumps(data))
    return read_decision(path)


def configs_of(demand: Demand) -> set[tuple[object, ...]]:
    """Return the configurations by names; their order and a pair's order of jobs do not count."""
    rows = set()
    for jobs, gpu_type, gpus, rates, power_w, clock in zip(
        demand.configurations.jobs.tolist(),
        demand.configurations.gpu_type.tolist(),
        demand.configurations.gpus.tolist(),
        demand.configurations.steps_per_s.tolist(),
        demand.configurations.power_w.tolist(),
        demand.configurations.clock_mhz.tolist(),
        strict=True,
    ):
        of = frozenset(
            (demand.jobs[job].name, rate) for job, rate in zip(jobs, rates, strict=True) if job != NOBODY
        )
        rows.add((of, demand.cluster.gpu_types[gpu_type], gpus, power_w, clock))
    return rows


def test_the_example_of_fairness(tmp_path: Path) -> None:
    decision = read(tmp_path, BASE)
    assert MaxMinFairness().allocate(decision.demand).objective == pytest.approx(8 / 11)
    assert not decision.has_steps


def test_a_type_is_that_of_several_jobs(tmp_path: Path) -> None:
    typed = BASE | {"jobs": [{"name": name, "type": "T"} for name in "xy"], "throughputs": {"T": {"v100": 2}}}
    pair = {"pairs": [{"jobs": ["T", "T"], "v100": [1.5, 1]}]}
    assert {of for of, *_ in configs_of(read(tmp_path, typed | pair).demand)} == {
        frozenset({("x", 2.0)}),
        frozenset({("y", 2.0)}),
        frozenset({("x", 1.5), ("y", 1.0)}),
    }


@pytest.mark.parametrize("is_file", [False, True])
def test_pairs(is_file: bool, tmp_path: Path) -> None:
    """A pair in which one job makes no steps is left out; a pair's jobs have the order of its rates."""
    (tmp_path / "t.json").write_text(json.dumps(GAVEL))
    changed: dict[str, Any] = {"throughputs": "t.json"} if is_file else {"pairs": PAIRS}
    rows = configs_of(read(tmp_path, BASE | changed).demand)
    ab, ac = frozenset({("a", 20.0), ("b", 7.5)}), frozenset({("a", 30.0), ("c", 60.0)})
    alone = configs_of(read(tmp_path, BASE).demand)
    assert rows == alone | {(ab, "v100", 1, 0.0, 0), (ac, "v100", 1, 0.0, 0)}


def test_all_fields(tmp_path: Path) -> None:
    """Jobs come in the order of their arrival, whatever theirs in the file."""
    (tmp_path / "t.csv").write_text(
        "job_type,scale_factor,gpu_type,steps_per_s,power_w,clock_mhz\n"
        "GPT,4,h100,4,2400,1980\nGPT,4,h100,3,1500,1200\nGPT,8,h100,7,,\n7,1,a100,2,,\n"
    )
    late = {"name": "late", "type": "GPT", "steps": 1000, "steps_left": 250, "scale_factor": 4, "weight": 2}
    late |= {"arrival_s": 50, "waited_s": 10, "slo_s": 900, "entity": "x", "isolated_s": 20}
    decision = read(
        tmp_path,
        {
            "workers": {"h100": 8, "a100": 4},
            "jobs": [
                late | {"other_scale_factors": [8]},
                {"name": "7", "steps": 10, "waited_s": 5, "slo_s": None, "entity": "y"},
            ],
            "throughputs": "t.csv",
            "dollars_per_hour": {"h100": 3, "a100": 1.5},
            "gpus_per_server": {"h100": 8},
            "power_cap_w": 5000,
        },
    )
    demand = decision.demand
    first, second = demand.jobs
    assert (first.name, first.waited_s, first.job.slo_s) == ("7", 5.0, math.inf)
    job = Job("late", "GPT", 1000.0, 4, 2.0, 50.0, 900.0, "x", (8,))
    assert second == ActiveJob(job, 250.0, 10.0, 20.0)
    assert configs_of(demand) == {
        (frozenset({("late", 4.0)}), "h100", 4, 2400.0, 1980),
        (frozenset({("late", 3.0)}), "h100", 4, 1500.0, 1200),
        (frozenset({("late", 7.0)}), "h100", 8, 0.0, 0),
        (frozenset({("7", 2.0)}), "a100", 1, 0.0, 0),
    }
    prices = {"h100": 3.0, "a100": 1.5}
    assert demand.cluster == GpuCluster({"h100": 8, "a100": 4}, prices, {"h100": 8}, 5000.0)
    assert decision.has_steps


def job(**fields: object) -> dict[str, Any]:
    return {"jobs": [{"name": "a", **fields}, *JOBS[1:]]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"workers": {}}, "cluster.workers is empty; give GPUs of at least one type, as v100: 36"),
        ({"worker": 1}, "has an unknown field 'worker'; the fields are jobs, throughputs, pairs"),
        (job(weight=0), "jobs[0]: job a: weight: 0.0 is not a weight above 0; correct it"),
        (job(wieght=2), "jobs[0]: has an unknown field 'wieght'; the fields are name, type, steps"),
        (job(steps=math.nan), "jobs[0].steps: nan is not a number; give one"),
        (
            job(steps=5, steps_left=6),
            "jobs[0].steps_left: 6 is not above 0 and at most the job's 5 steps; corr",
        ),
        (job(slo_s=5, waited_s=6), "jobs[0].slo_s: 5.0 is not after the 6 s that the job has waited; give a"),
        (job(scale_factor=2), "jobs: 'a' is not runnable: no GPU type with its 2 GPUs has a throughput"),
        ({"jobs": "a"}, "jobs: 'a' is not a list; give one"),
        ({"jobs": []}, "jobs: [] is not a list of jobs; give at least one"),
        ({"jobs": [*JOBS, {"name": "a"}]}, "jobs: 'a' is not a name of one job alone; rename one"),
        ({"jobs": JOBS[:2]}, "throughputs: 'c' is not a job or type; the file has a, b"),
        ({"jobs": [*JOBS, {"name": "d"}]}, "jobs: 'd' is not runnable: no GPU type with its 1 GPUs has a"),
        (
            {"throughputs": {**ROWS, "a": {"V100": 1}}},
            "throughputs.a.V100: 'V100' is not a GPU type of the workers; correct it, or add it to them",
        ),
        ({"pairs": [{"jobs": ["a", "d"], "v100": [1, 1]}]}, "pairs[0].jobs: ['a', 'd'] is not two jobs of"),
        (
            {"pairs": [{"jobs": ["a", "b"], "v100": [1, 2]}, {"jobs": ["b", "a"], "v100": [1, 2]}]},
            "pairs[1].v100: b with a on 1 v100 has other steps/s elsewhere; make both entries equal",
        ),
        (
            {"workers": {"v100": 2, "k80": 2}, "pairs": PAIRS} | job(scale_factor=2),
            "pairs[0].jobs: ['a', 'b'] is not possible with {2} GPUs for a and {1} for b; remove the pair",
        ),
    ],
)
def test_mistakes(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with raises_line(ClusterError, str(tmp_path / "decision.json"), has=message):
        read(tmp_path, BASE | changed)


def test_files_that_are_no_decision(tmp_path: Path) -> None:
    path = tmp_path / "decision.json"
    for text, message in (
        ("", "is not JSON"),
        ('{"workers": {"v100": 1}, "workers": {}}', "workers is given twice"),
        ("[]", r"\[\] is not a mapping; give one"),
        ("{}", "lacks the field 'workers'; add it"),
    ):
        path.write_text(text)
        with pytest.raises(ClusterError, match=message):
            read_decision(path)
    with pytest.raises(ClusterError, match="cannot be read"):
        read_decision(tmp_path)
