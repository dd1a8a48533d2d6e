from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from experiments.predict.measured_folder import blocking_one_f_one_b
from placements import Block, Kind, Placement
from schedsearch.baselines import one_f_one_b
from schedsearch.metrics import peak_memory
from schedsearch.validate import validate

TIMES = st.integers(1, 9)


def pipeline(forward: list[int], backward: list[int], transfer: list[tuple[int, int]]) -> Placement:
    """Return stages with these times, and transfers as pairs of activation and gradient times."""
    blocks: list[Block] = []

    def add(name: str, kind: Kind, devices: tuple[int, ...], time: int, memory: int = 0) -> None:
        after = (blocks[-1].name,) if blocks else ()
        blocks.append(Block(name, kind, devices, time, memory, after))

    last = len(forward) - 1
    for i, time in enumerate(forward):
        add(f"F{i}", Kind.F, (i,), time, 1)
        if i < last:
            add(f"A{i}", Kind.F, (i, i + 1), transfer[i][0])
    for i in range(last, -1, -1):
        if i < last:
            add(f"G{i}", Kind.B, (i, i + 1), transfer[i][1])
        add(f"B{i}", Kind.B, (i,), backward[i], -1)
    updates = [Block(f"O{i}", Kind.O, (i,), 1, after=("B0",)) for i in range(last + 1)]
    return Placement("pipeline", last + 1, (*blocks, *updates))


def v_shape_of(placement: Placement) -> Placement:
    """The same without transfers."""
    blocks = []
    for block in placement.blocks:
        if block.name[0] in "FB":
            blocks.append(
                Block(
                    block.name,
                    block.kind,
                    block.devices,
                    block.time,
                    block.memory,
                    (blocks[-1].name,) if blocks else (),
                )
            )
    return Placement("v_shape", placement.num_devices, tuple(blocks))


@st.composite
def pipelines(draw: st.DrawFn) -> Placement:
    num_stages = draw(st.integers(1, 6))
    times = st.lists(TIMES, min_size=num_stages, max_size=num_stages)
    hops = st.lists(st.tuples(TIMES, TIMES), min_size=num_stages, max_size=num_stages)
    return pipeline(draw(times), draw(times), draw(hops))


@given(pipelines(), st.integers(1, 12))
def test_the_order_is_1f1bs_and_never_stuck(placement: Placement, num_micro_batches: int) -> None:
    schedule = validate(blocking_one_f_one_b(placement, num_micro_batches))
    known = one_f_one_b(v_shape_of(placement), num_micro_batches)
    for device in range(placement.num_devices):
        order = [instance for instance in schedule.order(device) if instance[0][0] in "FB"]
        assert order == list(known.order(device))
    assert peak_memory(schedule).tolist() == peak_memory(known).tolist()
    assert schedule.makespan > known.makespan


@given(TIMES, TIMES, TIMES, TIMES, TIMES, TIMES, st.integers(2, 9))
def test_two_stages_take_what_a_hand_adds_up(
    f0: int, b0: int, f1: int, b1: int, activation: int, gradient: int, num_micro_batches: int
) -> None:
    """Both stand still while they exchange; between two exchanges each runs its pair of blocks.

    At the begin the first stage has only its second forward to do, and at the end only a backward.
    """
    schedule = blocking_one_f_one_b(pipeline([f0, f1], [b0, b1], [(activation, gradient)]), num_micro_batches)
    first, last = max(f0, f1 + b1), max(b0, f1 + b1)
    between = (num_micro_batches - 2) * (gradient + activation + max(f0 + b0, f1 + b1))
    by_hand = f0 + activation + first + between + gradient + activation + last + gradient + b0
    assert schedule.makespan == by_hand + 1  # an update of one tick


def test_a_transfer_holds_up_both_ends() -> None:
    """Of three equal stages the middle one takes part in four transfers of each micro-batch."""
    placement = pipeline([10] * 3, [20] * 3, [(3, 3)] * 3)
    assert blocking_one_f_one_b(placement, 1).makespan == 3 * 30 + 4 * 3 + 1
    fewer, more = (blocking_one_f_one_b(placement, number).makespan for number in (20, 21))
    assert more - fewer == 30 + 4 * 3
