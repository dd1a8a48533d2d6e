"""Training loops that move between workers have the losses of one that stays, bit for bit.

The jobs are forked from the test's process, an engine of its own: it need not import torch anew.
"""

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
from torch.utils.data import DataLoader, TensorDataset

import runtime
from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.leases.engine import LocalProcess, LocalProcesses
from runtime.leases.lease import LEASES, Lease
from runtime.leases.leased_run import LOG, LeasedRun, start_of
from runtime.models import cut
from runtime.program.deadlock import check
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    """Let torch import its compiler here, once, which it does for the first optimizer."""
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)]).step()


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


def run(
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

    moved, places = run(example, tmp_path / "moved", 1, {"a": 17, "b": 12}, moving=True)
    stayed, _ = run(example, tmp_path / "stayed", 1, {"a": 17, "b": 12}, moving=False)
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
            generator = torch.Generator().manual_seed(7)
            loader = DataLoader(samples, batch_size=8, shuffle=True, generator=generator)
            batches = pipeline.loader(loader)

            def save(path: Path) -> None:
                pipeline.save(path, optimizer, {"batches": batches.state_dict()}, is_async=False)

            def load(path: Path) -> None:
                found = pipeline.load(path, optimizer)
                assert found is not None
                batches.load_state_dict(found.extra["batches"])

            for batch in (leased := runtime.LeasedIterator(batches, load, save)):
                loss = pipeline.step(batch)
                optimizer.step()
                optimizer.zero_grad()
                lines.append(f"{leased.num_steps}: {loss.hex()}")
        return lines

    def both() -> None:
        first, second = join(2, train, Path(os.environ[LEASES]))
        assert first == second
        sys.stdout.write("".join(f"{line}\n" for line in first))

    moved, places = run(both, tmp_path / "moved", 2, {"a": 11, "b": 8}, moving=True)
    stayed, _ = run(both, tmp_path / "stayed", 2, {"a": 11, "b": 8}, moving=False)
    assert places == [{"v100", "k80"}] * 2
    assert moved == stayed
    assert [len(lines) for lines in moved.values()] == [11, 8]
