"""Runs equal the unpipelined model bit for bit where every block is on one device, and wrong ones do not.

The model in one piece adds up gradients in the order of the schedule; each run is compared with it in losses,
every gradient of every iteration, and the parameters after three steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from places import CNN
from small_runs import compared, comparison_of, errors, require_exact, trained
from strategies import any_schedules

from placements.shapes import loop_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape
from runtime.launching.launch import LaunchError
from runtime.models import ModelOptions
from runtime.models.optimizer import Optimizer
from runtime.options.model import DTYPES
from runtime.options.run import NETWORKS
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Instruction, Receive
from runtime.program.lower import lower
from runtime.program.tensor_flow import forward_consumers
from runtime.verify.reference import ReferenceCase, plain
from runtime.verify.replay import ReplayError
from schedsearch.baselines import (
    chimera,
    dual_pipe,
    gpipe,
    interleaved_one_f_one_b,
    one_f_one_b,
    one_f_one_b_plus,
    zb_v,
)
from schedsearch.schedule import Schedule, as_soon_as_possible

MODEL = ModelOptions(
    "gpt",
    hidden_size=8,
    sequence_length=5,
    micro_batch_size=1,
    num_layers=4,
    num_heads=4,
    seed=3,
    learning_rate=0.01,
)
ADAMW = {"optimizer": "adamw", "weight_decay": 0.1}
SMALL = ModelOptions("synthetic", hidden_size=4, sequence_length=3, micro_batch_size=1)
FEW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def model_options(name: str, **more: object) -> ModelOptions:
    path = str(CNN) if name == "module" else None
    return replace(MODEL, name=name, path=path, **ADAMW, **more)  # type: ignore[arg-type]


def backwards_in_turn(num_devices: int, num_micro_batches: int) -> Schedule:
    """Return a V-shape each of whose devices takes the backward blocks in an order of its own."""
    placement, numbers = v_shape(num_devices), range(num_micro_batches)
    orders = []
    for device in range(num_devices):
        turned = [*numbers[device:], *numbers[:device]]
        orders.append([(f"F{device}", n) for n in numbers] + [(f"B{device}", n) for n in turned])
    return as_soon_as_possible(placement, num_micro_batches, orders)


SINGLE_DEVICES = [
    ("gpt", one_f_one_b(v_shape(4), 4)),
    ("gpt", backwards_in_turn(3, 4)),
    ("gpt", interleaved_one_f_one_b(loop_shape(2), 4)),
    ("gpt", zb_v(wave_shape(2, split_backward=True), 4)),
    ("gpt", chimera(x_shape(4), 4)),
    ("gpt", dual_pipe(x_shape(4, split_backward=True), 4)),
    ("synthetic", one_f_one_b(v_shape(3), 4)),
    ("synthetic", chimera(x_shape(2), 4)),
    ("module", one_f_one_b(v_shape(4), 4)),
    ("module", backwards_in_turn(4, 4)),
]
EMBEDDING_ON_ALL = [("gpt", one_f_one_b_plus(m_shape(2), 3)), ("mt5", gpipe(nn_shape(2), 2))]
"""Only tables of embeddings are cut here: of each row all shards but one give zero, so no sum is rounded."""


def ids(value: object) -> str:
    return (
        f"{value.placement.name}_{value.placement.num_devices}" if isinstance(value, Schedule) else str(value)
    )


EVERY_TYPE = [SINGLE_DEVICES[4], SINGLE_DEVICES[-1]]


@pytest.mark.parametrize(
    ("name", "schedule", "dtype"),
    [
        *((*case, "float32") for case in SINGLE_DEVICES + EMBEDDING_ON_ALL),
        *((*case, dtype) for case in EVERY_TYPE for dtype in DTYPES if dtype != "float32"),
    ],
    ids=ids,
)
def test_single_device_blocks_equal_the_model_in_one_piece(name: str, schedule: Schedule, dtype: str) -> None:
    require_exact(compared(lower(schedule), model_options(name, dtype=dtype)))


def test_the_order_of_accumulation_is_seen() -> None:
    """Else the zeros above would say nothing of it."""
    schedule = backwards_in_turn(3, 4)
    case = ReferenceCase(replace(MODEL, num_layers=3), schedule.placement, 4, 1)
    (right,), (other,) = plain(case, {0: [schedule.order(d) for d in range(3)]}), plain(case)
    assert right.losses == other.losses
    differ = {
        shard.name
        for shard, gradient in right.gradients.items()
        if not torch.equal(gradient, other.gradients[shard])
    }
    assert any("layer1" in name for name in differ) and any("layer2" in name for name in differ)
    assert not any("layer0" in name for name in differ), "device 0 takes them in their order"


@FEW
@given(any_schedules(single_devices=True), st.sampled_from(DTYPES), st.sampled_from(["sgd", "adamw"]))
def test_any_schedule_of_single_devices_equals_the_model_in_one_piece(
    schedule: Schedule, dtype: str, optimizer: str
) -> None:
    consumers = [forward_consumers(schedule.placement, block.name) for block in schedule.placement.blocks]
    assume(max(map(len, consumers)) <= 2)  # two gradients have one sum, three have several
    require_exact(compared(check(lower(schedule)), replace(SMALL, dtype=dtype, optimizer=optimizer)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["gpt", "synthetic", "module"])
def test_a_step_that_is_left_out_is_seen_in_the_parameters_alone(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Optimizer.step

    def not_on_device_1(self: Optimizer, among: Iterable[torch.Tensor] | None = None) -> None:
        if os.environ.get("RANK") == "1":
            for weight in self._parameters:
                weight.grad = None
        else:
            right(self, among)

    monkeypatch.setattr(Optimizer, "step", not_on_device_1)
    num_devices = 4 if name == "module" else 2
    programs = lower(one_f_one_b(v_shape(num_devices), 2))
    comparison = comparison_of(trained(programs, model_options(name, dtype=dtype), None, 1, "fork"))
    assert errors(comparison)[:2] == (0, 0)
    assert comparison.max_parameter_error > 1e-4
    assert not comparison.bitwise_equal


def swap(program: list[Instruction], place: int) -> bool:
    """Exchange a receive with another micro-batch's of the same tensor."""
    one = program[place]
    for other, twin in enumerate(program):
        if isinstance(twin, Receive) and other != place and replace(twin, micro_batch=one.micro_batch) == one:
            program[place], program[other] = program[other], program[place]
            return True
    return False


def drop(program: list[Instruction], place: int) -> bool:
    del program[place]
    return True


def off_by_one(program: list[Instruction], place: int) -> bool:
    program[place] = replace(program[place], micro_batch=program[place].micro_batch + 1)
    return True


@FEW
@given(st.data(), st.sampled_from([swap, drop, off_by_one]), st.sampled_from(NETWORKS))
def test_a_wrong_receive_of_any_schedule_is_refused_and_would_fail_or_differ(
    data: st.DataObject, edit: Callable[[list[Instruction], int], bool], network: str
) -> None:
    programs = lower(data.draw(any_schedules()))
    instructions = [list(program) for program in programs.instructions]
    places = [
        (device, place)
        for device, program in enumerate(instructions)
        for place, instruction in enumerate(program)
        if isinstance(instruction, Receive)
    ]
    assume(places)
    device, place = data.draw(st.sampled_from(places))
    assume(edit(instructions[device], place))
    wrong = replace(programs, instructions=tuple(map(tuple, instructions)))
    with pytest.raises(UnsafeProgramsError):
        check(wrong)
    try:
        comparison = comparison_of(trained(wrong, SMALL, None, 1, backend=network))
    except (LaunchError, ReplayError):
        return
    assert not comparison.bitwise_equal
    assert max(errors(comparison)) > 1e-9
