"""Copies of a stage that take micro-batches in turn: runs equal the unpipelined model, and the recursion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import compared, comparison_of, require_exact, trained
from torch import Tensor

from placements.copies.replicas import as_stages, orders_of_stages, replicated
from placements.modes import Chosen
from placements.shapes import loop_shape, v_shape
from runtime.execution.measurement import ReferenceComparison
from runtime.execution.results import Progress
from runtime.models import (
    WHOLE,
    Model,
    ModelError,
    ModelOptions,
    body_of,
    load_state_dict_file,
    read_versions,
)
from runtime.orders.offered import offer
from runtime.program.deadlock import UnsafeProgramsError, check, check_updates
from runtime.program.instructions import Programs, Receive, Run
from runtime.program.lower import device_orders, lower, with_updates
from schedsearch.baselines import pipedream
from schedsearch.schedule import Schedule, as_soon_as_possible
from schedsearch.validate import validate

GPT = ModelOptions(
    "gpt",
    hidden_size=8,
    sequence_length=5,
    micro_batch_size=1,
    num_layers=4,
    num_heads=4,
    seed=3,
    learning_rate=0.01,
)
SYNTHETIC = replace(GPT, name="synthetic")
STASHING = replace(SYNTHETIC, weight_versions="weight_stashing")


def programs_of(schedule: Schedule, options: ModelOptions = GPT) -> Programs:
    """Return the proved programs of a schedule, as a run of the model has them."""
    per_update = options.micro_batches_per_update
    if options.weight_versions != "flush":
        schedule = with_updates(schedule, per_update)
    programs = check(lower(validate(schedule)))
    if options.weight_versions != "flush":
        check_updates(programs, per_update)
    return programs


def run(schedule: Schedule, options: ModelOptions) -> ReferenceComparison:
    """Run a schedule, and compare every iteration."""
    return compared(programs_of(schedule, options), options)


def in_turn(replicas: Sequence[int], number: int) -> Schedule:
    """Return 1F1B-RR on a V-shape with `replicas` copies of each stage."""
    return pipedream(replicated(v_shape(len(replicas), 1, 2), replicas), number)


def taking(replicas: Sequence[int], chosen: Sequence[Chosen]) -> Schedule:
    """Return a schedule in which each micro-batch takes the copies that are given for it, two in flight."""
    placement = replicated(v_shape(len(replicas), 1, 2), replicas)
    orders = []
    for stage, copies in enumerate(replicas):
        for copy in range(copies):
            numbers = [n for n, taken in enumerate(chosen) if taken[stage] == copy]
            order = [(f"F{stage}@{copy}", n) for n in numbers[: len(replicas) - stage - 1]]
            for i, n in enumerate(numbers):
                ahead = numbers[i + len(replicas) - stage - 1 :][:1]
                order += [*((f"F{stage}@{copy}", later) for later in ahead), (f"B{stage}@{copy}", n)]
            orders.append(order)
    return as_soon_as_possible(placement, len(chosen), orders, chosen)


@pytest.mark.parametrize("replicas", [(2, 1), (1, 2), (2, 2), (1, 3, 2)])
@pytest.mark.parametrize("options", [GPT, replace(GPT, optimizer="adamw", clip_grad_norm=0.1)])
def test_one_update_of_all_copies_is_that_of_the_model_in_one_piece(
    replicas: tuple[int, ...], options: ModelOptions
) -> None:
    """Also with more copies than divide the micro-batches, and with clipped gradients."""
    require_exact(run(in_turn(replicas, 5), options))


@pytest.mark.parametrize("options", [GPT, STASHING])
def test_copies_run_as_processes(options: ModelOptions) -> None:
    result = trained(programs_of(in_turn((2, 1), 4), options), options, launcher="fork")
    require_exact(comparison_of(result))
    assert len(result.losses[0]) == 4


def test_a_run_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    programs, adamw = programs_of(in_turn((2, 1), 4)), replace(GPT, optimizer="adamw")
    all_losses = trained(programs, adamw, iterations=4).losses
    trained(programs, adamw, checkpoints=tmp_path, checkpoint_every=2)
    result = trained(programs, adamw, iterations=4, resume=tmp_path)
    require_exact(comparison_of(result))
    assert result.losses == all_losses[2:]


def test_zero_gives_each_copy_a_part_of_the_optimizer() -> None:
    require_exact(run(in_turn((2, 1), 4), replace(GPT, optimizer="adamw", zero=1)))


@pytest.mark.parametrize("launcher", ["in_process", "fork"])
def test_a_run_goes_on_without_a_lost_device_from_the_next_iteration_on(
    launcher: str, tmp_path: Path
) -> None:
    """The program of the other copies is taken over between two iterations; losses and gradients stay."""
    adamw = replace(GPT, optimizer="adamw", clip_grad_norm=0.1)
    whole = programs_of(taking((2, 2), [(n % 2, n % 2) for n in range(6)]))
    lost = programs_of(taking((2, 2), [(1, n % 2) for n in range(6)]))
    offer(lost, tmp_path / "programs", first=1)
    progress = list[Progress]()
    given = {"programs": tmp_path / "programs", "progress": progress.append}
    result = trained(whole, adamw, None, 3, launcher, **given)
    assert [event.note for event in progress] == ["iteration 1: another program runs", "", ""]
    require_exact(comparison_of(result))
    before = trained(whole, adamw, None, 3, launcher)
    for losses, other in zip(result.losses, before.losses, strict=True):
        assert losses == pytest.approx(other, rel=1e-12)


def test_what_a_copy_that_is_not_taken_runs_or_receives_is_refused() -> None:
    programs = programs_of(in_turn((2, 1), 2))
    first, second, third = programs.instructions
    more = (*second, Run("F0@1", 0))
    with pytest.raises(UnsafeProgramsError, match="which is none of its blocks and micro-batches"):
        check(replace(programs, instructions=(first, more, third)))
    needless = (*second, Receive("B1@0", "B0@1", 0, 2))
    with pytest.raises(UnsafeProgramsError, match="which nothing there needs"):
        check(replace(programs, instructions=(first, needless, third)))


def recursion(replicas: Sequence[int], number: int, in_flight: Sequence[int]) -> Iterator[dict[str, Tensor]]:
    """Yield the parameters of each stage after its last update of weight stashing, one gradient a copy.

    Update t of a stage of r copies is the mean over micro-batches r t to r t + r - 1. A copy that runs k
    forwards before its first backward reads the newest version of its stage: after k micro-batches of its own
    that of t + 1 - k, before that version 0.
    """
    placement = v_shape(len(replicas))
    body = body_of(STASHING, placement)
    names = [f"F{stage}" for stage in range(len(replicas))]
    models = [Model(STASHING, placement, {name: WHOLE}, body=body) for name in names]
    data = body.data(number, "cpu")
    versions = [[model.weights(name)] for name, model in zip(names, models, strict=True)]
    sums: list[dict[str, Tensor]] = [{} for _ in names]
    for n in range(number):
        read = [
            {
                name: weight.detach().clone().requires_grad_()
                for name, weight in stage_versions[max(n // r + 1 - k, 0)].items()
            }
            for stage_versions, r, k in zip(versions, replicas, in_flight, strict=True)
        ]
        value: list[Tensor] = []
        for name, model, weights in zip(names, models, read, strict=True):
            value = [model.forward(name, value, data.read(name, 0, n), weights)]
        value[0].backward()  # type: ignore[no-untyped-call]
        for stage, weights in enumerate(read):
            for name, weight in weights.items():
                assert weight.grad is not None
                before = sums[stage].get(name)
                sums[stage][name] = weight.grad if before is None else before + weight.grad
            if (n + 1) % replicas[stage] == 0:
                newest = versions[stage][-1]
                versions[stage].append(
                    {
                        name: weight.detach().sub(
                            sums[stage][name] / replicas[stage], alpha=STASHING.learning_rate
                        )
                        for name, weight in newest.items()
                    }
                )
                sums[stage] = {}
    for stage_versions in versions:
        yield {name: weight.detach() for name, weight in stage_versions[-1].items()}


@pytest.mark.parametrize(
    ("replicas", "in_flight"), [((2, 1), (2, 1)), ((1, 3), (4, 1)), ((2, 2), (2, 1)), ((1, 3, 2), (6, 2, 1))]
)
def test_weight_stashing_is_pipedreams_recursion(
    replicas: tuple[int, ...], in_flight: tuple[int, ...], tmp_path: Path
) -> None:
    """Bit for bit the recursion that is written down here, and the replay and the model in one piece."""
    schedule = in_turn(replicas, 12)
    require_exact(run(schedule, STASHING))
    saved = tmp_path / "weights.safetensors"
    given = {"verify": "none", "exact": True, "save_weights": saved}
    trained(programs_of(schedule, STASHING), STASHING, iterations=1, **given)
    placement = v_shape(len(replicas))
    model = Model(STASHING, placement, dict.fromkeys((f"F{stage}" for stage in range(len(replicas))), WHOLE))
    load_state_dict_file(model, saved)
    for stage, weights in enumerate(recursion(replicas, 12, in_flight)):
        assert weights.keys() == model.weights(f"F{stage}").keys() != set()
        for name, value in model.weights(f"F{stage}").items():
            assert torch.equal(value, weights[name]), name


@pytest.mark.parametrize("mode", ["vertical_sync", "double_buffering"])
def test_parallel_pipelines_run_with_other_versions(mode: str) -> None:
    """As many copies of every stage: the same versions for all, of two micro-batches of each copy."""
    options = replace(SYNTHETIC, weight_versions=mode, micro_batches_per_update=2)
    require_exact(run(in_turn((2, 2, 2), 16), options))


def test_double_buffering_runs_in_data_parallel_groups() -> None:
    """Each micro-batch is cut over two pipelines: equal up to the order of sums, and to the replay."""
    base = pipedream(v_shape(2, 1, 2), 8)
    blocks = tuple(
        replace(block, devices=(2 * block.devices[0], 2 * block.devices[0] + 1), data_parallel=2)
        for block in base.placement.blocks
    )
    both = replace(base.placement, num_devices=4, blocks=blocks)
    orders = [base.order(device // 2) for device in range(4)]
    options = replace(
        SYNTHETIC, micro_batch_size=2, weight_versions="double_buffering", micro_batches_per_update=2
    )
    comparison = run(as_soon_as_possible(both, 8, orders), options)
    assert comparison.bitwise_equal
    assert max(comparison.max_gradient_error, comparison.max_parameter_error) < 1e-14


def test_copies_that_take_other_micro_batches_than_an_update_has_are_refused() -> None:
    lost = taking((2, 1), [(1, 0)] * 4)
    stages = as_stages(lost.placement)
    orders = orders_of_stages(lost.placement, device_orders(programs_of(lost)))
    with pytest.raises(ModelError, match="gradient of F0 of micro-batch 1 is complete before or after"):
        read_versions(STASHING, stages, 4, orders)


def test_copies_that_wait_for_each_other_in_a_cycle_are_refused() -> None:
    """The second stage wants the other copy's micro-batch first, which waits for the update."""
    placement = replicated(v_shape(2), [2, 1])
    chosen = ((0, 0), (1, 0), (0, 0), (1, 0))
    orders = [
        [("F0@0", 0), ("B0@0", 0), ("F0@0", 2), ("B0@0", 2)],
        [("F0@1", 1), ("B0@1", 1), ("F0@1", 3), ("B0@1", 3)],
        [(f"{kind}1@0", n) for n in (0, 2, 1, 3) for kind in "FB"],
    ]
    programs = check(lower(as_soon_as_possible(placement, 4, orders, chosen)))
    with pytest.raises(UnsafeProgramsError, match="devices wait for each other in a cycle"):
        check_updates(programs, 1)


def test_copies_that_make_their_updates_in_other_orders_are_refused() -> None:
    """The second copy finishes its second stage's micro-batches before the first stage's."""
    placement = replicated(loop_shape(1), [2])
    orders = [
        [(f"{name}@0", n) for n in (0, 2) for name in ("F0", "F1", "B1", "B0")],
        [(f"{name}@1", n) for names in (("F0",), ("F1", "B1"), ("B0",)) for n in (1, 3) for name in names],
    ]
    programs = check(lower(as_soon_as_possible(placement, 4, orders, ((0,), (1,), (0,), (1,)))))
    with pytest.raises(UnsafeProgramsError, match="devices 0, 1 make the updates of their stages in diff"):
        check_updates(programs, 1)
