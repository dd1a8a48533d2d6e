"""The dissertation's example (Sec. 5.4.1) in every form that says it, and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from told import told

from schedsearch.cluster.demand import NOBODY, Demand
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.decision_file import Decision, read_decision
from schedsearch.cluster.policies.fairness import MaxMinFairness

ROWS = {"a": {"v100": 40, "k80": 10}, "b": {"v100": 12, "k80": 4}, "c": {"v100": 100, "k80": 50}}
MATRIX = [[40, 10], [12, 4], [100, 50]]
PAIRS = [{"jobs": ["a", "b"], "v100": [20, 7.5]}, {"jobs": ["a", "c"], "v100": [30, 60], "k80": [0, 30]}]
BASE: dict[str, Any] = {"workers": {"v100": 1, "k80": 1}, "jobs": ["a", "b", "c"], "throughputs": ROWS}
GAVEL = {
    "v100": {
        "('a', 1)": {"null": 40, "('b', 1)": [20, 7.5], "('c', 1)": [30, 60]},
        "('b', 1)": {"null": 12},
        "('c', 1)": {"null": 100},
    },
    "k80": {
        "('a', 1)": {"null": 10, "('c', 1)": [0, 30]},
        "('b', 1)": {"null": 4},
        "('c', 1)": {"null": 50},
    },
}
TYPED = [{"name": name, "type": name} for name in "abc"]


def read(tmp_path: Path, data: object) -> Decision:
    path = tmp_path / "decision.json"
    path.write_text(json.dumps(data))
    return read_decision(path)


def rows_of(demand: Demand) -> set[tuple[object, ...]]:
    """Return the configurations by names, whatever their order and that of the jobs of a pair."""
    found = set()
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
        found.add((of, demand.cluster.gpu_types[gpu_type], gpus, power_w, clock))
    return found


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"throughputs": MATRIX},
        {"workers": [1, 1], "gpu_types": ["v100", "k80"], "throughputs": MATRIX},
        {"gpu_types": ["k80", "v100"], "workers": [1, 1]},
        {"throughputs": {name: [*row.values()] for name, row in ROWS.items()}},
        {"throughputs": {"v100": [40, 12, 100], "k80": [10, 4, 50]}},
        {"jobs": [{"job_id": name, "throughputs": row} for name, row in ROWS.items()], "throughputs": {}},
        {"jobs": [{"name": "a", "type": "big"}, "b", "c"], "throughputs": {**ROWS, "big": {"v100": 1}}},
        {"jobs": [{"name": name, "type": f"type {name}"} for name in "abc"]}
        | {"throughputs": {f"type {name}": row for name, row in ROWS.items()}},
        {
            "jobs": TYPED,
            "throughputs": {k: {j: {"null": c["null"]} for j, c in r.items()} for k, r in GAVEL.items()},
        },
    ],
)
def test_every_form_says_the_same(tmp_path: Path, changed: dict[str, Any]) -> None:
    data = {key: value for key, value in (BASE | changed).items() if value is not None}
    decision = read(tmp_path, data)
    assert rows_of(decision.demand) == rows_of(read(tmp_path, BASE).demand)
    assert MaxMinFairness().allocate(decision.demand).objective == pytest.approx(8 / 11)
    assert not decision.has_steps


@pytest.mark.parametrize(
    "changed",
    [
        {"pairs": PAIRS},
        {
            "pairs": [
                {"jobs": [1, 0], "v100": [7.5, 20]},
                {"jobs": ["a", "c"], "throughputs": PAIRS[1] | {"jobs": None}},
            ]
        },
        {"pairs": {"a,b": {"v100": [20, 7.5]}, "('a', 'c')": {"v100": [30, 60], "k80": [0, 30]}}},
        {"throughputs": {**ROWS, "a, b": {"v100": [20, 7.5]}, "c,a": [[60, 30], None]}},
        {"jobs": TYPED, "throughputs": GAVEL},
    ],
)
def test_pairs_in_every_form(tmp_path: Path, changed: dict[str, Any]) -> None:
    """A pair of which one makes no steps is left out; the order of a pair is that of its rates."""
    for pair in changed.get("pairs", []) if isinstance(changed.get("pairs"), list) else []:
        pair.get("throughputs", {}).pop("jobs", None)
    found = rows_of(read(tmp_path, BASE | changed).demand)
    alone = rows_of(read(tmp_path, BASE).demand)
    ab, ac = frozenset({("a", 20.0), ("b", 7.5)}), frozenset({("a", 30.0), ("c", 60.0)})
    assert found == alone | {(ab, "v100", 1, 0.0, 0), (ac, "v100", 1, 0.0, 0)}


def test_a_file_of_throughputs_beside_it(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(GAVEL))
    found = read(tmp_path, BASE | {"jobs": TYPED, "throughputs": "t.json"})
    assert rows_of(found.demand) == rows_of(read(tmp_path, BASE | {"pairs": PAIRS}).demand)


def test_all_fields(tmp_path: Path) -> None:
    """Jobs come in the order of their arrival, whatever theirs in the file."""
    decision = read(
        tmp_path,
        {
            "workers": {"h100": 8, "a100": 4},
            "jobs": [
                {"name": "late", "steps": 1000, "steps_left": 250, "scale_factor": 4, "weight": 2}
                | {"arrival_s": 50, "slo_s": 900, "entity": "x", "isolated_s": 20, "type": "GPT"},
                {"id": 7, "num_steps": 10, "waited_s": 5, "slo_s": None, "entity": "y"},
            ],
            "throughputs": {
                "late": {
                    "h100": [
                        {"steps_per_s": 4, "power_w": 2400, "clock_mhz": 1980},
                        {"steps_per_s": 3, "power_w": 1500, "clock_mhz": 1200},
                        {"steps_per_s": 7, "gpus": 8},
                    ],
                    "a100": None,
                },
                "7": {"a100": 2},
            },
            "prices": [3, 1.5],
            "gpus_per_server": {"h100": 8},
            "power_cap_w": 5000,
            "entities": {"x": {"weight": 2, "policy": "fifo"}, "y": 1},
            "budget": 100,
            "now_s": 60,
        },
    )
    demand = decision.demand
    first, late = demand.jobs
    assert (first.name, first.waited_s, first.job.slo_s) == ("7", 5.0, math.inf)
    assert (late.waited_s, late.steps_left, late.isolated_s, late.slo_left_s) == (10.0, 250.0, 20.0, 890.0)
    assert (late.job.scale_factor, late.job.weight, late.job.type, late.job.entity) == (4, 2.0, "GPT", "x")
    assert rows_of(demand) == {
        (frozenset({("late", 4.0)}), "h100", 4, 2400.0, 1980),
        (frozenset({("late", 3.0)}), "h100", 4, 1500.0, 1200),
        (frozenset({("late", 7.0)}), "h100", 8, 0.0, 0),
        (frozenset({("7", 2.0)}), "a100", 1, 0.0, 0),
    }
    assert np.all(demand.configurations.steps_per_s[:, 0] > 0)
    assert dict(demand.cluster.dollars_per_hour) == {"h100": 3.0, "a100": 1.5}
    assert demand.cluster.power_cap_w == 5000 and demand.cluster.server_of("h100") == 8
    assert decision.entities == {"x": (2.0, "fifo"), "y": (1.0, "fairness")}
    assert decision.budget_dollars == 100.0 and decision.has_steps


def job(**fields: object) -> dict[str, Any]:
    return {"jobs": [{"name": "a", **fields}, "b", "c"]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"workers": {"v100": 0, "k80": 0}},
            "workers: {'v100': 0, 'k80': 0} is not a cluster with a GPU; give 1 or more of some type",
        ),
        ({"worker": 1}, "has an unknown field 'worker'; write 'workers', or remove it; known are workers, "),
        (
            job(wieght=2),
            "jobs[0]: has an unknown field 'wieght'; write 'weight', or remove it; known are name",
        ),
        (job(steps=math.nan), "jobs[0].steps: nan is not a number of steps; give more than 0"),
        (job(steps=5, steps_left=6), "jobs[0].steps_left: 6 is not at most the job's 5 steps; correct one"),
        (
            job(scale_factor=2),
            "jobs[0].scale_factor: 2 is not a number of GPUs that there are; the largest type",
        ),
        (job(arrival_s=9) | {"now_s": 5}, "jobs[0].arrival_s: 9 is not at or before now_s, 5; leave out"),
        ({"jobs": "a"}, "jobs: 'a' is not a list of jobs; give one"),
        ({"jobs": ["a", "b", "d"]}, "throughputs: 'c' is no job, pair or type of job of the file; write "),
        (
            {"jobs": ["a", "b", "c", "d"]},
            "throughputs: lack job d; add how many steps/s it does on each GPU type",
        ),
        (
            {"throughputs": {**ROWS, "a": {"V100": 1}}},
            "throughputs.a: 'V100' is no GPU type of the workers; write",
        ),
        (
            {"pairs": [{"jobs": ["a", "d"], "v100": [1, 1]}]},
            "pairs[0].jobs: ['a', 'd'] is not two different jobs",
        ),
        (
            {"pairs": {"a, b": {"v100": [1, 1]}, "b, a": {"v100": [1, 1]}}},
            "throughputs: b with a on 1 v100 is given",
        ),
        ({"workers": [1, 1]}, 'workers: [1, 1] is not by GPU type; write {"v100": 1, "k80": 1}'),
        (
            {"entities": {"x": 1}} | job(entity="y"),
            "jobs[0].entity: 'y' is not an entity of the file; write 'x'",
        ),
        (
            {"entities": {"x": {"policy": "lifo"}}},
            "entities.x.policy: 'lifo' is not known; use one of fairness",
        ),
    ],
)
def test_mistakes(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with told(ClusterError, str(tmp_path / "decision.json"), has=message):
        read(tmp_path, BASE | changed)


def test_whole_numbers_may_be_as_large_as_others(tmp_path: Path) -> None:
    large = 10**30
    data = BASE | {"throughputs": ROWS | {"a": {"v100": large, "k80": {"steps_per_s": large}}}}
    data["pairs"] = [{"jobs": ["a", "b"], "v100": [large, 7.5]}]
    assert read(tmp_path, data).demand.configurations.steps_per_s.max() == pytest.approx(1e30)


def test_pairs_have_as_many_gpus(tmp_path: Path) -> None:
    data = BASE | {"workers": {"v100": 2, "k80": 2}, "pairs": PAIRS} | job(scale_factor=2)
    with pytest.raises(ClusterError, match="is not possible with 2 GPUs for a and 1 for b; remove the pair"):
        read(tmp_path, data)


def test_files_that_are_no_decision(tmp_path: Path) -> None:
    path = tmp_path / "decision.json"
    for text, message in (
        ("", "is not JSON"),
        ('{"workers": {"v100": 1}, "workers": {}}', "workers is given twice"),
        ("[]", r"\[\] is not a mapping of workers"),
        ("{}", "lacks the field 'workers'; add it"),
        ('{"workers": {"v100": 1}}', "lacks the field 'jobs'; add it"),
    ):
        path.write_text(text)
        with pytest.raises(ClusterError, match=message):
            read_decision(path)
    with pytest.raises(ClusterError, match="cannot be read"):
        read_decision(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(BASE).encode())
    assert len(read_decision(path).demand.jobs) == 3
