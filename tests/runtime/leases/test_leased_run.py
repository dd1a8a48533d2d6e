"""Real processes in rounds on two workers, where jobs move: nothing is lost, and no loss has another bit."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
from joined import join
from places import ROOT
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import runtime
from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.leases.engine import LocalProcess, LocalProcesses
from runtime.leases.lease import LEASES, Lease
from runtime.leases.leased_run import LOG, JobStart, LeasedRun, start_of, steps_of_rounds
from runtime.models import cut
from runtime.program.deadlock import check
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs
from schedsearch.solver.interrupts import INTERRUPTS

pytestmark = pytest.mark.usefixtures("compiler")

CLUSTER = GpuCluster({"v100": 1, "k80": 1})
POINTS = {"v100": (JobOperatingPoint(4.0),), "k80": (JobOperatingPoint(2.0),)}
THROUGHPUTS = Throughputs({("any", 1): POINTS})
OPTIONS = SimulationOptions(round_s=5.0, reset_s=0.0, types_in_turn=False)
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


class Forks(LocalProcesses):
    """Starts a function in a process of its own instead of a command."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def start(
        self, lease: Lease, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> Forks.Task:
        return Forks.Task(self._function, environment, log)

    class Task(LocalProcess):
        """A forked process."""

        def __init__(self, function: Callable[[], object], environment: Mapping[str, str], log: Path) -> None:
            def be() -> None:
                os.environ.update(environment)
                torch.set_num_threads(1)
                with log.open("a", encoding="utf-8") as output, redirect_stdout(output):
                    function()

            self._forked = multiprocessing.get_context("fork").Process(target=be)
            self._forked.start()

        def poll(self) -> int | None:
            return self._forked.exitcode

        def kill(self) -> None:
            self._forked.kill()
            self._forked.join()


def run_loops(
    function: Callable[[], object], folder: Path, gpus: int, steps: Mapping[str, int], *, moving: bool
) -> tuple[dict[str, list[str]], list[set[str]]]:
    """Return what jobs print, and the GPU types that each was on; those that do not move have one each."""
    workers = {"v100": gpus, "k80": gpus} if moving else {"v100": gpus * len(steps)}
    cluster = GpuCluster(workers)
    points = {"v100": (JobOperatingPoint(2.0),), "k80": (JobOperatingPoint(1.0),)}
    starts = {name: start_of(folder / name, []) for name in steps}
    told: list[str] = []
    found = LeasedRun(
        [Job(name, "any", float(number), gpus) for name, number in steps.items()],
        cluster,
        Throughputs({("any", gpus): points}),
        policy_of("las"),
        SimulationOptions(round_s=3.0 if moving else 100.0, reset_s=0.0, types_in_turn=False),
        starts,
        Forks(function),
        told.append,
    )
    found.run(None)
    assert not told
    places = [{each.gpu_type for each in found.steps_done if each.job == name} for name in steps]
    return {name: (folder / name / LOG).read_text().splitlines() for name in steps}, places


def test_the_example_that_moves_and_the_one_that_stays_have_the_same_losses(tmp_path: Path) -> None:
    def example() -> object:
        return runpy.run_path(str(ROOT / "examples/leased_loop.py"))

    moved, places = run_loops(example, tmp_path / "moved", 1, {"a": 17, "b": 12}, moving=True)
    stayed, _ = run_loops(example, tmp_path / "stayed", 1, {"a": 17, "b": 12}, moving=False)
    assert places == [{"v100", "k80"}] * 2
    for name, number in {"a": 17, "b": 12}.items():
        losses = [line.split(" on ")[0] for line in moved[name]]
        assert losses == [line.split(" on ")[0] for line in stayed[name]]
        assert len(losses) == number


def test_a_pipeline_of_two_processes_moves_with_its_loader(tmp_path: Path) -> None:
    script = tmp_path / "job"
    generate(check(lower(one_f_one_b(v_shape(2), 4))), {}, {"name": "given"}, script)
    torch.manual_seed(1)
    samples = TensorDataset(torch.randn(24, 6), torch.randint(3, (24,)))

    def train(rank: int) -> list[str]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
        lines = []
        with runtime.Pipeline(cut(model, ["2"]), script, loss=cross_entropy) as pipeline:
            optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.01)
            loader = DataLoader(samples, batch_size=8, sampler=DistributedSampler(samples, 1, 0))

            def save(path: Path) -> None:
                pipeline.save(path, optimizer, is_async=False)

            def load(path: Path) -> None:
                assert pipeline.load(path, optimizer) is not None

            for batch in (leased := runtime.LeasedIterator(loader, load, save)):
                loss = pipeline.step(batch)
                optimizer.step()
                optimizer.zero_grad()
                lines.append(f"{leased.num_steps}: {loss.hex()}")
        return lines

    def both() -> None:
        first, second = join(2, train, Path(os.environ[LEASES]))
        assert first == second
        sys.stdout.write("".join(f"{line}\n" for line in first))

    moved, places = run_loops(both, tmp_path / "moved", 2, {"a": 11, "b": 8}, moving=True)
    stayed, _ = run_loops(both, tmp_path / "stayed", 2, {"a": 11, "b": 8}, moving=False)
    assert places == [{"v100", "k80"}] * 2
    assert moved == stayed
    assert [len(lines) for lines in moved.values()] == [11, 8]
