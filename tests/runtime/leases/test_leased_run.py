"""Real processes in rounds on two workers, where jobs move: nothing is lost, whatever happens to them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runtime.leases.engine import LocalProcesses
from runtime.leases.leased_run import LOG, JobStart, LeasedRun, start_of, steps_of_rounds
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs
from schedsearch.solver.interrupts import INTERRUPTS

CLUSTER = GpuCluster({"v100": 1, "k80": 1})
POINTS = {"v100": (JobOperatingPoint(4.0),), "k80": (JobOperatingPoint(2.0),)}
THROUGHPUTS = Throughputs({("any", 1): POINTS})
OPTIONS = SimulationOptions(round_s=5.0, reset_s=0.0, types_in_turn=False, fills_idle_gpus=False)
JOBS = [Job("a", "any", 90.0), Job("b", "any", 60.0), Job("c", "any", 30.0, arrival_s=8.0)]

SCRIPT = """
import json, os, signal, time
from pathlib import Path
import runtime

state = {"value": 1}
batches = runtime.LeasedIterator(
    range(7),
    lambda path: state.update(json.loads(path.read_text())),
    lambda path: path.write_text(json.dumps(state)),
)
job, once = os.environ["SCHEDSEARCH_JOB"], Path(os.environ["SCHEDSEARCH_LEASES"]) / "once"
print("began", flush=True)
for batch in batches:
    state["value"] = (state["value"] * 48271 + batch) % 2147483647
    EVENT
    print(batches.num_steps, state["value"], flush=True)
"""
"""Its numbers depend on all steps before, and on the batch of each."""


class Jobs:
    """The jobs of a test in a folder, whose script has something happen at each step."""

    def __init__(self, folder: Path, event: str = "pass") -> None:
        self.script, self.folder, self.told = folder / "job.py", folder, list[str]()
        self.script.write_text(SCRIPT.replace("EVENT", event))

    def starts(self) -> dict[str, JobStart]:
        command = [sys.executable, str(self.script)]
        return {job.name: start_of(self.folder / job.name, command) for job in JOBS}

    def run(self, **options: object) -> LeasedRun:
        found = self.prepared(**options)
        found.run(None)
        return found

    def prepared(self, **options: object) -> LeasedRun:
        starts = self.starts()
        left = [Job(job.name, job.type, job.steps - starts[job.name].done) for job in JOBS]
        if not any(start.done for start in starts.values()):
            left = JOBS
        engine = options.pop("engine", LocalProcesses(CLUSTER))
        return LeasedRun(
            left, CLUSTER, THROUGHPUTS, policy_of("las"), OPTIONS, starts, engine, self.told.append, **options
        )  # type: ignore[arg-type]

    def lines(self, name: str) -> list[str]:
        return (self.folder / name / LOG).read_text().splitlines()

    def steps(self, name: str) -> list[str]:
        """Return the lines of steps; of those that were done twice the last."""
        rows = [line for line in self.lines(name) if line[0].isdigit()]
        return [*{line.split()[0]: line for line in rows}.values()]


def uninterrupted(steps: int) -> list[str]:
    value, rows = 1, []
    for step in range(steps):
        value = (value * 48271 + step % 7) % 2147483647
        rows.append(f"{step} {value}")
    return rows


def check_results(jobs: Jobs, names: str = "abc") -> None:
    for job in JOBS:
        if job.name in names:
            assert jobs.steps(job.name) == uninterrupted(int(job.steps))


def test_jobs_that_move_do_what_the_simulation_says_and_what_they_do_alone(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    run = jobs.run()
    outcome = simulate_cluster(
        JOBS,
        CLUSTER,
        THROUGHPUTS,
        policy_of("las"),
        SimulationOptions(**{**OPTIONS.__dict__, "records_rounds": True}),
    )
    assert sorted(run.steps_done) == steps_of_rounds(outcome.recorded, "abc", CLUSTER)
    check_results(jobs)
    places = {each.job: [] for each in run.steps_done}
    for each in sorted(run.steps_done):
        places[each.job].append((each.round, each.gpu_type))
    assert {kind for _, kind in places["a"]} == {"v100", "k80"}
    for job in outcome.jobs:  # a lease that is renewed starts no process
        began = jobs.lines(job.job.name).count("began")
        assert began == job.starts < len(places[job.job.name]) or job.renewals == 0
    assert sum(job.renewals for job in outcome.jobs) > 0
    assert len([*(tmp_path / "a/checkpoints").iterdir()]) <= 2
    assert not jobs.told


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ("os._exit(3)", "ended with exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was ended by signal 9"),
        ("break", "ended after step "),
    ],
)
def test_a_job_that_fails_goes_on_from_its_checkpoint(tmp_path: Path, event: str, why: str) -> None:
    once = "if job == 'b' and batches.num_steps == 33 and not once.exists(): once.touch(); "
    jobs = Jobs(tmp_path, once + event)
    run = jobs.run()
    check_results(jobs)
    assert not run.given_up
    (line,) = jobs.told
    assert line.startswith("job b on ")
    assert why in line
    assert line.partition("; it goes on from step ")[2].isdigit()
    done = [each for each in run.steps_done if each.job == "b"]
    assert sum(each.steps for each in done) == 60


def test_a_job_that_always_fails_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, "if job == 'b' and batches.num_steps == 33: raise SystemExit('no more memory')")
    run = jobs.run()
    check_results(jobs, "ac")
    assert [*run.given_up] == ["b"]
    assert len(jobs.told) == 2
    assert "ended with exit code 1: no more memory; it goes on from step " in jobs.told[0]
    assert jobs.told[1].endswith("; it is given up, and the others go on")
    assert [one.finish_s > 0 for one in run.outcome().jobs] == [True, False, True]


def test_a_job_that_hangs_is_ended(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, "time.sleep(1000)")
    run = jobs.run(retries=0, timeout_s=0.2)
    assert set(run.given_up) == {"a", "b", "c"}
    assert all("took longer than 0.2 s for its lease" in line for line in jobs.told)


def test_a_ctrl_c_stops_all_jobs_after_a_checkpoint_and_no_step_is_done_twice(tmp_path: Path) -> None:
    jobs = Jobs(
        tmp_path,
        "if job == 'a' and batches.num_steps == 25 and not once.exists(): "
        "once.touch(); os.kill(os.getppid(), signal.SIGINT)",
    )
    stopped = jobs.prepared()
    with pytest.raises(KeyboardInterrupt), INTERRUPTS.watched():
        stopped.run(None)
    done = {name: start.done for name, start in jobs.starts().items()}
    assert 25 <= done["a"] < 90
    assert 0 < done["b"] < 60
    assert stopped.stopped_at.items() <= done.items()
    for name, steps in done.items():
        assert sum(each.steps for each in stopped.steps_done if each.job == name) == steps
    assert all(len(jobs.steps(name)) == steps for name, steps in done.items() if steps)
    jobs.run()
    check_results(jobs)
    for job in JOBS:
        assert len([line for line in jobs.lines(job.name) if line[0].isdigit()]) == job.steps
    assert not jobs.told
