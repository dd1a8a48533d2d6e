"""Real jobs in rounds on two nodes of Ray, where they move: nothing is lost, and no loss has another bit."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.program.deadlock import check
from runtime.program.lower import lower
from runtime.rounds.iterator import Lease
from schedsearch.baselines import one_f_one_b
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs

real_rounds = pytest.importorskip("runtime.rounds.real_rounds", reason="needs ray")
RealJob, RealRounds = real_rounds.RealJob, real_rounds.RealRounds

pytestmark = pytest.mark.usefixtures("ray_nodes")

CLUSTER = GpuCluster({"v100": 1, "k80": 1})
POINTS = {
    name: (JobOperatingPoint(rate, 100.0),) for name, rate in (("v100", 4.0), ("k80", 2.0), ("p100", 3.0))
}
THROUGHPUTS = Throughputs({("any", gpus): POINTS for gpus in (1, 2)})
OPTIONS = SimulationOptions(round_s=10.0, reset_s=0.0, types_in_turn=False, records_rounds=True)
JOBS = [Job("a", "any", 90.0), Job("b", "any", 60.0), Job("c", "any", 30.0, arrival_s=8.0)]

SCRIPT = """
import json, os, signal, time
from pathlib import Path
import runtime

job, folder = os.environ["SCHEDSEARCH_JOB"], Path(os.environ["SCHEDSEARCH_JOB_FOLDER"])
once, state = folder / "once", {"value": 1}

def save(path):
    if once.exists() and once.read_text() == "full":
        once.write_text("")
        path.mkdir()
        raise OSError(28, "No space left on device")
    path.write_text(json.dumps(state))

batches = runtime.LeasedIterator(range(7), lambda path: state.update(json.loads(path.read_text())), save)
print("began", flush=True)
for batch in batches:
    state["value"] = (state["value"] * 48271 + batch) % 2147483647
    EVENT
    print(batches.num_steps, state["value"], flush=True)
"""
"""Its numbers depend on all steps before, and on the batch of each."""


class Jobs:
    """The jobs of a test in a folder, whose script has something happen at each step."""

    def __init__(self, folder: Path, event: str = "pass", jobs: Sequence[Job] = JOBS) -> None:
        self.jobs, self.folder, self.messages = jobs, folder, list[str]()
        self.command = [sys.executable, str(folder / "job.py")]
        (folder / "job.py").write_text(SCRIPT.replace("EVENT", event))

    def prepared(self, cluster: GpuCluster = CLUSTER, options: SimulationOptions = OPTIONS) -> Any:
        real = [RealJob(job.name, self.command, self.folder / job.name) for job in self.jobs]
        given = self.jobs, cluster, THROUGHPUTS, policy_of("las"), options
        return RealRounds(*given, real_jobs=real, tell=self.messages.append)

    def run(self, cluster: GpuCluster = CLUSTER, options: SimulationOptions = OPTIONS) -> Any:
        rounds = self.prepared(cluster, options)
        rounds.run()
        return rounds

    def lines(self, name: str) -> list[str]:
        return (self.folder / name / "log.txt").read_text().splitlines()

    def rows(self, name: str) -> list[str]:
        return [line for line in self.lines(name) if line[0].isdigit()]

    def check(self, names: str = "abc") -> None:
        """Check the results of all steps; of a step done twice, the last result."""
        for job in self.jobs:
            if job.name in names:
                last = {line.split()[0]: line for line in self.rows(job.name)}
                assert [*last.values()] == uninterrupted(int(job.steps))


def uninterrupted(steps: int) -> list[str]:
    value, rows = 1, []
    for step in range(steps):
        value = (value * 48271 + step % 7) % 2147483647
        rows.append(f"{step} {value}")
    return rows


def test_jobs_that_move_do_what_the_simulation_says_and_what_they_do_alone(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    run = jobs.run()
    assert not jobs.messages
    outcome = simulate_cluster(JOBS, CLUSTER, THROUGHPUTS, policy_of("las"), OPTIONS)
    assert tuple(run.recorded) == outcome.recorded
    jobs.check()
    assert {job_run.gpu_type for one in run.recorded for job_run in one.runs if 0 in job_run.jobs} == {0, 1}
    for job in outcome.jobs:  # a lease that is renewed starts no process
        assert jobs.lines(job.job.name).count("began") == job.starts
    assert sum(job.renewals for job in outcome.jobs) > 0
    assert len(run.moves) == sum(job.preemptions for job in outcome.jobs)
    assert all(0 < move.save_s < move.start_s for move in run.moves)
    assert len([*(tmp_path / "a/checkpoints").iterdir()]) == 2
    assert not jobs.messages


EVENTS = """if batches.num_steps == 23 and not once.exists():
        once.write_text("full" if job == "c" else "")
        if job == "a": os.kill(os.getpid(), signal.SIGKILL)
        if job == "b": break"""


def test_jobs_that_fail_go_on_from_their_last_round(tmp_path: Path) -> None:
    """One is killed, one breaks out of its loop, and one cannot save on a full disk."""
    jobs = Jobs(tmp_path, EVENTS)
    run = jobs.run()
    jobs.check()
    assert not run.given_up
    wanted = {
        "a": " ended with exit code -9",
        "b": " ended before its lease",
        "c": " ended with exit code 1: OSError: [Errno 28] No space",
    }
    for name, why in wanted.items():
        (line,) = (line for line in jobs.messages if line.startswith(f"job {name} on "))
        assert why in line
        assert int(line.partition("; it goes on from step ")[2]) >= 0
    assert not [*tmp_path.glob("*/checkpoints/torn*")]


def test_a_job_that_hangs_and_one_that_is_not_there(tmp_path: Path) -> None:
    wanted = {"sleep 1000": "took longer than 0.2 s", "none": "cannot be started ([Errno 2]"}
    for command, why in wanted.items():
        job = RealJob("a", command.split(), tmp_path, 0.2 if "sleep" in command else math.inf)
        running = real_rounds.RayJob(job, Lease(0, 5, "v100", [0]), has_devices=False)
        with pytest.raises(real_rounds.JobError, match=re.escape(why)):
            running.wait()
        running.end()


SLOW_K80 = "batches.lease.gpu_type == 'k80' and time.sleep(0.1); batches.num_steps == 45 and once.touch()"


def test_jobs_of_a_node_that_is_killed_go_on_from_their_last_round(tmp_path: Path, ray_nodes: Any) -> None:
    """The K80s go in the second round, and come back after it."""
    jobs = Jobs(tmp_path, SLOW_K80, [JOBS[0], replace(JOBS[1], steps=100.0), JOBS[2]])
    rounds, tell = jobs.prepared(), jobs.messages.append

    def answer(line: str) -> None:
        tell(line)
        if "0 of 1 k80" in line:
            ray_nodes.add()

    rounds._tell = answer
    killer = threading.Thread(target=lambda: (wait_for(tmp_path / "a/once"), ray_nodes.kill()))
    killer.start()
    rounds.run()
    killer.join()
    jobs.check()
    assert jobs.messages == [
        "GPUs that are there: 1 of 1 v100, 0 of 1 k80",
        "job a on k80 0 in round 2 lost its node; it goes on from step 40",
        "GPUs that are there: 1 of 1 v100, 1 of 1 k80",
    ]
    assert 90 < len(jobs.rows("a")) <= 110
    assert [len(jobs.rows(name)) for name in "bc"] == [100, 30]
    assert 1 in {run.gpu_type for record in rounds.recorded[2:] for run in record.runs}


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def test_a_scheduler_that_is_interrupted_and_killed_goes_on_from_the_last_round(
    tmp_path: Path, ray_nodes: Any
) -> None:
    jobs = Jobs(tmp_path, SLOW_K80)
    (tmp_path / "data.csv").write_text(
        "job_type,scale_factor,gpu_type,steps_per_s\nany,1,v100,4\nany,1,k80,2\n"
    )
    (tmp_path / "trace.csv").write_text(
        "name,job_type,scale_factor,steps,arrival_s\na,any,1,90,0\nb,any,1,60,0\n"
    )
    options = ["cluster.workers={v100: 1, k80: 1}", "cluster.dollars_per_hour=null", "rounds=one_queue"]
    options += ["round_s=10", "recompute_s=0", f"run.command={' '.join(jobs.command)}"]
    options += [
        f"data={tmp_path / 'data.csv'}",
        f"trace={tmp_path / 'trace.csv'}",
        f"hydra.run.dir={tmp_path}",
    ]
    command = [sys.executable, "-m", "experiments.cluster", *options]
    environment = {**os.environ, "RAY_ADDRESS": ray_nodes.address}
    interrupted = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    wait_for(tmp_path / "jobs/0_a/log.txt")
    interrupted.send_signal(signal.SIGINT)
    assert "; each job has a checkpoint (a at step " in interrupted.communicate()[1]
    stopped = len((tmp_path / "jobs/0_a/log.txt").read_text().splitlines()) - 1
    assert (tmp_path / f"jobs/0_a/checkpoints/{stopped}").exists()
    killed = subprocess.Popen(command, cwd=ROOT, env=environment)
    wait_for(tmp_path / "jobs/0_a/once")
    killed.kill()
    killed.wait()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert " leases as simulated, " in done.stdout, done.stderr
    (tmp_path / "jobs/0_a").rename(tmp_path / "a")
    (tmp_path / "jobs/1_b").rename(tmp_path / "b")
    jobs.check("ab")
    assert len(jobs.rows("a")) <= 110


PIPELINE = """
import os, sys
from pathlib import Path
sys.path[:0] = [ROOT, ROOT + "/tests"]  # rooms of tests have the names of packages
import torch
from joined import join
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import runtime
from runtime.models import cut

torch.manual_seed(1)
samples = TensorDataset(torch.randn(24, 6), torch.randint(3, (24,)))

def train(rank):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    with runtime.Pipeline(cut(model, ["2"]), Path(SCRIPT), loss=cross_entropy) as pipeline:
        optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.01)
        loader = DataLoader(samples, batch_size=8, sampler=DistributedSampler(samples, 1, 0))
        save = lambda path: pipeline.save(path, optimizer, is_async=False)
        load = lambda path: pipeline.load(path, optimizer)
        lines = []
        for batch in (leased := runtime.LeasedIterator(loader, load, save)):
            loss = pipeline.step(batch)
            optimizer.step()
            optimizer.zero_grad()
            lines.append(f"step {leased.num_steps}: {loss.hex()}")
    return lines

first, second = join(2, train, Path(os.environ["SCHEDSEARCH_JOB_FOLDER"]))
assert first == second
print(*first, sep="\\n", flush=True)
"""


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("gpus", [1, 2], ids=["example", "pipeline"])
def test_a_job_that_moves_and_one_that_stays_have_the_same_losses(tmp_path: Path, gpus: int) -> None:
    """The example's loop, and a pipeline of two processes with its loader."""
    script, folder = ROOT / "examples/leased_loop.py", tmp_path / "script"
    if gpus == 2:
        generate(check(lower(one_f_one_b(v_shape(2), 4))), {}, {"name": "given"}, folder)
        script = tmp_path / "pipeline.py"
        script.write_text(f"ROOT, SCRIPT = {str(ROOT)!r}, {str(folder)!r}\n{PIPELINE}")
    losses = []
    for names, round_s in (("ab", 1.5), ("c", 100.0)):
        jobs = Jobs(tmp_path, jobs=[Job(name, "any", 9.0, gpus) for name in names])
        jobs.command = [sys.executable, str(script)]
        run = jobs.run(GpuCluster({"v100": gpus, "k80": gpus}), replace(OPTIONS, round_s=round_s))
        assert not jobs.messages
        assert len(run.moves) == 2 * (len(names) - 1)
        losses += [[line.split(" on ")[0] for line in jobs.lines(name)] for name in names]
    assert losses[0] == losses[1] == losses[2]
    assert len(losses[0]) == 9
