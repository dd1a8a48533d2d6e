"""`experiments.cluster`: a simulation, policies by load, a decision, and refused input of each."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from commands import one_line_error, refusal
from places import ROOT

from experiments.cluster.options import (
    ClusterCommandOptions,
    GpuClusterOptions,
    PolicyOptions,
    RealRunOptions,
)
from experiments.cluster.workload import rounds_of, simulation_options

TABLE = """job_type,scale_factor,gpu_type,steps_per_s,power_w
slow,1,v100,1.0,200
slow,1,k80,0.5,100
fast,1,v100,4.0,300
fast,1,k80,1.0,100
fast,2,v100,7.0,600
"""
TRACE = """name,job_type,scale_factor,steps,arrival_s,slo_s
a,slow,1,1000,0,
b,fast,1,8000,0,1000
c,fast,2,7000,100,
d,slow,2,10,200,
"""
OWN = ["cluster.workers={v100:2,k80:1}", "cluster.dollars_per_hour={v100:3.6,k80:0.36}"]
SMALL = ["trace.num_jobs=12", "trace.lam_s=600", "trace.durations_h=[0.5,1]", *OWN]
DECISION = {
    "workers": {"v100": 1, "k80": 1},
    "jobs": [{"name": name} for name in "abc"],
    "throughputs": {
        name: {"v100": v100, "k80": k80} for name, v100, k80 in (("a", 40, 10), ("b", 12, 4), ("c", 100, 50))
    },
}


@pytest.fixture
def data(tmp_path: Path) -> str:
    (tmp_path / "own.csv").write_text(TABLE)
    return f"data={tmp_path / 'own.csv'}"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    (tmp_path / "own_trace.csv").write_text(TRACE)
    return f"trace={tmp_path / 'own_trace.csv'}"


def test_what_stands_for_no_rounds_has_a_name() -> None:
    groups = (GpuClusterOptions(), {}, PolicyOptions(), RealRunOptions())
    names = ("cluster", "trace", "policy_options", "run")
    options = ClusterCommandOptions(**dict(zip(names, groups, strict=True)))  # type: ignore[arg-type]
    policies = (replace(options, policy=name) for name in ("las", "min_cost"))
    assert [*map(rounds_of, policies)] == ["in_turn", "one_queue"]
    for name, skips in (("gavel", True), ("in_turn", False), (None, False)):
        simulated = simulation_options(replace(options, rounds=name))
        assert (simulated.skips_to_arrivals, simulated.types_in_turn) == (skips, True)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_a_trace_of_ones_own(command, data: str, trace: str, tmp_path: Path) -> None:
    done = command("cluster", data, trace, *OWN, "policy=las", "rounds=one_queue", draws=True)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    figures = json.loads((out / "cluster.json").read_text())
    assert figures["jobs"]["skipped"] == [{"type": "slow", "scale_factor": 2, "count": 1}]
    assert "1 of slow on 2 GPUs" in done.stderr + done.stdout
    assert "k80, rounds=one_queue\n" in done.stdout and figures["rounds"] == "one_queue"
    jobs = {row["job"]: row for row in rows_of(out / "jobs.csv")}
    assert list(jobs) == ["a", "b", "c"]
    jcts = [float(row["finish_s"]) - float(row["arrival_s"]) for row in jobs.values()]
    assert figures["average_jct_s"] == pytest.approx(sum(jcts) / 3)
    assert figures["dollars"] == pytest.approx(sum(float(row["dollars"]) for row in jobs.values()))
    assert figures["kwh"] == pytest.approx(sum(float(row["kwh"]) for row in jobs.values()))
    assert figures["slo"] == {"jobs": 1, "violations": 1, "violation_share": 1.0}  # b has 2000 s of work
    assert figures["command"].startswith("schedsearch cluster ")
    assert figures["options"]["policy"] == "las"
    busy = [int(row["busy_v100"]) for row in rows_of(out / "series.csv")]
    assert max(busy) == 2
    for name in ("completion_times", "busy_gpus"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (out / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (out / f"{name}.svg").is_file()
    for text in (" h (3 of 3 jobs are done)", " $ (of all jobs", " kWh (", "1 of 1 jobs"):
        assert text in done.stdout


def test_a_sweep_of_policies_and_seeds_is_a_table_and_a_picture(command, data: str, tmp_path: Path) -> None:
    sweep = f"hydra.sweep.dir={tmp_path / 'sweep'}"
    given = ["-m", data, *SMALL, "trace.reference=k80", "policy=las_agnostic,las", "trace.seed=0,1", sweep]
    done = command("cluster", *given)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "sweep/runs.csv")
    assert [(row["policy"], row["trace.seed"]) for row in rows] == [
        (policy, seed) for policy in ("las_agnostic", "las") for seed in "01"
    ]
    assert all(float(row["average_jct_s"]) > 0 for row in rows)
    assert (tmp_path / "sweep/sweep.png").is_file()


@pytest.mark.always
def test_one_decision(command, tmp_path: Path) -> None:
    """The dissertation's example of fairness: each job has 8/11 of its speed at half time on each type."""
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(DECISION))
    done = command("cluster", f"allocate={file}", "policy=las")
    assert done.returncode == 0, done.stderr
    allocation = json.loads((tmp_path / "out/allocation.json").read_text())
    assert allocation["objective"] == pytest.approx(8 / 11)
    assert allocation["shares"]["c"]["k80"] == pytest.approx(10 / 11)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["job", "v100", "k80", "steps/s"]
    assert lines[3].split() == ["c", "9.09%", "90.91%", "54.545"]
    none = command("cluster", f"allocate={file}", "policy=least_cost_slo")  # no prices or powers are known
    assert "\nobjective 0: " in none.stdout
    wrong = one_line_error(command("cluster", f"allocate={file}", "policy=las", "cluster=physical"))
    assert wrong.startswith("cluster: error: cluster: is not of a decision")
    wrong = one_line_error(command("cluster", f"allocate={file}", "policy=makespan"))
    assert "a job has no steps, which policy makespan looks at" in wrong


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["policy=lass"], "policy: 'lass' is not known; use one of las"),
        (["window=[2,99]"], "window: [2, 99] is not within the trace, which has 12 jobs"),
        (["trace.reference=h100"], "is not a type with a throughput on 1 h100"),
        (
            ["trace.multi_gpu=true", "trace.types=[slow]"],
            "trace.multi_gpu: True is not possible: no type of job may have several GPUs",
        ),
        (["data=."], "data: '.' is not a folder with simulation_throughputs.json"),
    ],
)
def test_wrong_options(overrides: list[str], message: str, refused, data: str, tmp_path: Path) -> None:
    assert message in refused("cluster", data, *SMALL, *overrides)
    assert not (tmp_path / "out/cluster.json").exists()


def test_a_trace_of_which_nothing_can_run_says_why(command, data: str, trace: str, tmp_path: Path) -> None:
    (tmp_path / "own_trace.csv").write_text(TRACE.partition("a,")[0] + "d,slow,2,10,200,\n")
    failed = command("cluster", data, trace, *OWN)
    assert failed.returncode == 2
    assert "1 jobs have no throughput and are skipped: 1 of slow on 2 GPUs; see data" in failed.stderr


def test_a_trace_that_is_not_there(refused, data: str) -> None:
    assert "none.csv: cannot be read" in refused("cluster", data, *OWN, "trace=none.csv")


def test_ctrl_c_keeps_the_figures_until_then(data: str, tmp_path: Path) -> None:
    given = [data, *OWN, "trace.num_jobs=8000", "trace.lam_s=3000", "policy=fifo"]
    line = [sys.executable, "-m", "experiments.cluster", *given, f"hydra.run.dir={tmp_path / 'out'}"]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    process.stderr.readline()  # the first line of progress: it has begun
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=120)[1]
    assert process.returncode == 130, error
    assert f" h of the trace are in {tmp_path / 'out'}" in error.splitlines()[-1]
    figures = json.loads((tmp_path / "out/cluster.json").read_text())
    assert figures["ended_early"] == "interrupted from the keyboard"


PLACED = """job_type,scale_factor,gpu_type,steps_per_s,unconsolidated_steps_per_s
chatty,2,v100,8,1
chatty,2,k80,4,2
quiet,2,v100,8,7
quiet,2,k80,4,4
"""


def test_jobs_are_slower_on_more_servers_than_they_need(command, tmp_path: Path) -> None:
    """As `test_placement` has it by hand: both jobs end at 1000 s."""
    (tmp_path / "placed.csv").write_text(PLACED)
    header = "name,job_type,scale_factor,steps,arrival_s\n"
    (tmp_path / "two.csv").write_text(f"{header}a,chatty,2,4000,0\nb,quiet,2,7000,0\n")
    given = [f"data={tmp_path / 'placed.csv'}", "trace=file", f"trace.path={tmp_path / 'two.csv'}"]
    given += ["cluster.workers={v100:2,k80:2}", "round_s=100", "recompute_s=0", "rounds=one_queue"]
    given += ["placement_sensitive=true"]
    done = command("cluster", *given, "cluster.gpus_per_server={v100:1,k80:2}")
    assert done.returncode == 0, done.stderr
    assert [float(row["finish_s"]) for row in rows_of(tmp_path / "out/jobs.csv")] == [1000.0, 1000.0]
    without = refusal("cluster", given, tmp_path / "no")
    assert without == "cluster.gpus_per_server: None is not known; give it, as in 4:4:8"


JOB = """
import os, runtime

batches = runtime.LeasedIterator(range(5), lambda path: path.read_text(), lambda path: path.write_text("x"))
for batch in batches:
    print(batches.num_steps, flush=True)
    if os.environ["SCHEDSEARCH_JOB"] == "c":
        raise SystemExit("out of memory")
"""


def test_real_jobs_beside_their_simulation(command, data: str, tmp_path: Path) -> None:
    """Jobs a and b move between a V100 and a K80; a job that always fails is given up."""
    (tmp_path / "job.py").write_text(JOB)
    header = "name,job_type,scale_factor,steps,arrival_s\n"
    (tmp_path / "two.csv").write_text(f"{header}a,slow,1,25,0\nb,fast,1,50,0\n")
    run = f"run.command='{sys.executable} {tmp_path / 'job.py'} {{type}}'"
    given = [data, "rounds=one_queue", "round_s=10", "recompute_s=0", run]
    moving = [*given, f"trace={tmp_path / 'two.csv'}", "cluster.workers={v100:1,k80:1}"]
    done = command("cluster", *moving, "cluster.dollars_per_hour=null")
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "out/rounds.csv")
    assert all(row["steps"] == row["simulated_steps"] for row in rows)
    assert {name: sum(int(row["steps"]) for row in rows if row["job"] == name) for name in "ab"} == {
        "a": 25,
        "b": 50,
    }
    assert {row["gpu_type"] for row in rows if row["job"] == "a"} == {"v100", "k80"}
    assert (tmp_path / "out/jobs/0_a/log.txt").read_text().split() == [str(step) for step in range(25)]
    shares = rows_of(tmp_path / "out/shares.csv")
    assert all(row["share"] == row["simulated_share"] for row in shares)
    assert f"{len(rows)} of {len(rows)} leases as simulated, 75 steps, " in done.stdout
    again = command("cluster", *moving, "cluster.dollars_per_hour=null")
    assert one_line_error(again).endswith(f"all jobs of {tmp_path / 'out'} are done; give another folder")
    (tmp_path / "two.csv").write_text(f"{header}c,slow,1,20,0\nd,slow,1,20,0\n")
    failing = [*given, f"trace={tmp_path / 'two.csv'}", "cluster.workers={v100:2}", "run.retries=0"]
    failed = command("cluster", *failing, f"hydra.run.dir={tmp_path / 'other'}")
    assert failed.returncode == 1
    assert "in round 1 ended with exit code 1: out of memory; it is given up, and the others" in failed.stdout
    assert "1 of 2 jobs are given up: c; see log.txt in " in failed.stderr
    assert ["d", "v100", "100.00%", "100.00%"] in [line.split() for line in failed.stdout.splitlines()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["run.command=no_such_program"], "run.command: 'no_such_program' is not a program that is there"),
        (
            ["run.command=python", "round_s=0.5"],
            "round_s: 0.5 is not as long as a step of job a, 2 s and",
        ),
        (
            ["run.command=python"],
            "RAY_ADDRESS: 127.0.0.1:1: [Errno 111] Connection refused; start the cluster",
        ),
        (["run.command=python", "window=[0,1]"], "window: [0, 1] is not null for a real run; leave it out"),
    ],
)
def test_what_a_real_run_refuses(
    data: str, trace: str, options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    path = ["trace=file", f"trace.path={trace.removeprefix('trace=')}"]
    printed = refusal("cluster", [data, *path, *OWN, *options], tmp_path / "no")
    assert printed.startswith(message)
