import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line_errors import raises_line
from strategies import placements as random_placements
from strategies import with_transfer

from placements import Block, Kind, Placement
from placements.copies.replicas import replicated
from placements.shapes import SHAPES, loop_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape
from schedsearch.baselines import (
    HAND_MADE,
    UnsuitablePlacementError,
    applicable,
    gpipe,
    interleaved_one_f_one_b,
    one_f_one_b,
    pipedream,
)
from schedsearch.core.answer import Status
from schedsearch.metrics import peak_memory
from schedsearch.proof.makespan import makespan_bound
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search
from schedsearch.validate import validate

Make = Callable[..., Placement]

CHAIN: Make = partial(v_shape, forward_time=1, backward_time=2)
SPLIT_CHAIN: Make = partial(v_shape, split_backward=True)
CROSS: Make = partial(x_shape, forward_time=1, backward_time=2)
SPLIT_CROSS: Make = partial(x_shape, split_backward=True)
LOOP: Make = partial(loop_shape, forward_time=1, backward_time=2)
WAVE: Make = partial(wave_shape, forward_time=1, backward_time=2)
SPLIT_WAVE: Make = partial(wave_shape, split_backward=True)

HOMES: dict[str, tuple[Make, ...]] = {
    "one_f_one_b": (CHAIN,),
    "eager_one_f_one_b": (CHAIN,),
    "one_f_one_b_plus": (m_shape, nn_shape),
    "interleaved_one_f_one_b": (LOOP, partial(LOOP, num_chunks=3)),
    "chimera": (CROSS,),
    "dual_pipe": (SPLIT_CROSS,),
    "zb_h1": (SPLIT_CHAIN,),
    "zb_h2": (SPLIT_CHAIN,),
    "zb_v": (SPLIT_WAVE,),
    "v_half": (SPLIT_WAVE,),
    "v_min": (SPLIT_WAVE,),
    "one_f_one_b_v": (WAVE,),
    "dual_pipe_v": (SPLIT_WAVE,),
    "hanayo": (WAVE, partial(WAVE, num_chunks=4)),
    "pipedream": (CHAIN,),
}


def figures(schedule: Schedule) -> tuple[int, int]:
    validate(schedule)
    return schedule.makespan, int(peak_memory(schedule).max())


def disguised(placement: Placement, seed: int) -> Placement:
    """Return the same placement with other names of blocks, numbers of devices and order of blocks."""
    order = random.Random(seed)
    blocks = list(placement.blocks)
    order.shuffle(blocks)
    names = {block.name: f"block_{i}" for i, block in enumerate(blocks)}
    devices = list(range(placement.num_devices))
    order.shuffle(devices)
    return Placement(
        "disguised",
        placement.num_devices,
        tuple(
            replace(
                block,
                name=names[block.name],
                devices=tuple(devices[d] for d in block.devices),
                after=tuple(names[name] for name in block.after),
            )
            for block in blocks
        ),
    )


def test_forward_blocks_that_wait_for_a_backward_on_their_device_come_after_it() -> None:
    blocks = (
        Block("F0", Kind.F, (0,), 1, 1),
        Block("B0", Kind.B, (0,), 2, -1, ("F0",)),
        Block("F1", Kind.F, (0,), 1, 0, ("B0",)),
    )
    placement = Placement("late", 1, blocks)
    names = [name for name, _ in gpipe(placement, 2).order(0)]
    assert names == ["F0", "F0", "B0", "B0", "F1", "F1"]
    assert list(applicable(placement.with_memory(2), 2)) == ["gpipe"]
    result = search(placement.with_memory(1), 2, objectives=["period"])
    assert (result.status, result.schedule.makespan) == (Status.OPTIMAL, 8)


@pytest.mark.parametrize("name", ["zb_v", "v_half", "v_min"])
def test_a_weight_half_that_waits_for_a_later_stage_is_no_pipeline(name: str) -> None:
    """The rule would run it before the block that the later stage waits for: a deadlock."""
    placement = SPLIT_WAVE(4)
    blocks = tuple(
        replace(block, after=("I7", "I1")) if block.name == "W7" else block for block in placement.blocks
    )
    with pytest.raises(UnsuitablePlacementError, match="needs a wave"):
        HAND_MADE[name](replace(placement, blocks=blocks), 8)


def test_gpipe_ends_with_optimizer_blocks() -> None:
    placement = v_shape(2)
    step = Block("O", Kind.O, (0,), 5, 0, ("B0",))
    schedule = validate(gpipe(replace(placement, blocks=(*placement.blocks, step)), 3))
    assert schedule.order(0)[-1] == ("O", 2)
    assert schedule.makespan == gpipe(placement, 3).makespan + 5


LOOP_OF_4: Make = partial(LOOP, num_chunks=4)
WAVES: Make = partial(WAVE, num_chunks=4)


@pytest.mark.parametrize(
    ("name", "make", "expected"),
    [
        ("gpipe", CHAIN, {(4, 8): (33, 8), (4, 16): (57, 16), (8, 8): (45, 8), (8, 16): (69, 16)}),
        ("one_f_one_b", CHAIN, {(4, 8): (33, 4), (4, 16): (57, 4), (8, 8): (45, 8), (8, 16): (69, 8)}),
        ("eager_one_f_one_b", CHAIN, {(4, 8): (33, 7), (4, 16): (57, 7), (8, 8): (45, 8), (8, 16): (69, 15)}),
        ("zb_h1", SPLIT_CHAIN, {(4, 8): (27, 4), (4, 16): (51, 4), (8, 8): (31, 8), (8, 16): (55, 8)}),
        ("zb_h2", SPLIT_CHAIN, {(4, 8): (27, 7), (4, 16): (51, 7), (8, 16): (55, 15)}),
        ("chimera", CROSS, {(4, 8): (30, 4), (4, 16): (58, 4), (8, 8): (36, 8), (8, 16): (66, 8)}),
        ("dual_pipe", SPLIT_CROSS, {(4, 8): (25, 5), (4, 16): (49, 5), (8, 16): (51, 9)}),
        ("interleaved_one_f_one_b", LOOP, {(4, 8): (28.5, 5.5), (8, 8): (34.5, 8), (8, 16): (58.5, 11.5)}),
        ("interleaved_one_f_one_b", LOOP_OF_4, {(4, 8): (26.25, 4.75), (8, 16): (53.25, 9.75)}),
        ("zb_v", SPLIT_WAVE, {(4, 8): (25.5, 4), (4, 16): (49.5, 4), (8, 8): (31, 8), (8, 16): (51.5, 8)}),
        (
            "v_half",
            SPLIT_WAVE,
            {(4, 8): (26.5, 3), (4, 16): (50.5, 3), (8, 8): (32.5, 5), (8, 16): (56.5, 5)},
        ),
        ("v_min", SPLIT_WAVE, {(4, 8): (29.5, 2), (4, 16): (53.5, 2), (8, 8): (37.5, 4), (8, 16): (61.5, 4)}),
        ("dual_pipe_v", SPLIT_WAVE, {(4, 8): (25.5, 4.5), (4, 16): (49.5, 4.5), (8, 16): (51.5, 8.5)}),
        ("hanayo", WAVE, {(4, 4): (18, 4), (8, 8): (38, 8)}),
        ("hanayo", WAVES, {(4, 4): (15.25, 4), (8, 8): (31.5, 8)}),
        (
            "one_f_one_b_v",
            WAVE,
            {(4, 8): (31.5, 3), (4, 16): (55.5, 3), (8, 8): (40.5, 6), (8, 16): (64.5, 6)},
        ),
    ],
)
def test_schedules_have_the_known_figures(
    name: str, make: Make, expected: dict[tuple[int, int], tuple[float, float]]
) -> None:
    """Makespan and peak by (devices, micro-batches), in units of a full stage, of which a chunk is a part.

    F = 1, B = 2 whole, or F = I = W = 1; micro-batches are those of both directions.
    """
    computed = {}
    for p, m in expected:
        placement = make(p)
        pairs = 2 if placement.name == "x_shape" else 1
        num_chunks = sum(block.kind is Kind.F for block in placement.on(0)) // pairs
        makespan, peak = figures(HAND_MADE[name](placement, m // pairs))
        computed[p, m] = makespan / num_chunks, peak / num_chunks
    assert computed == expected


@pytest.mark.parametrize(("placement", "bubble_rate"), [(m_shape(), 0.25), (nn_shape(), 0.20)])
def test_one_f_one_b_plus_has_the_papers_steady_bubble_rate(placement: Placement, bubble_rate: float) -> None:
    """Tessel, Table II, column 1F1B+; Chimera's 20 % follows from the figures above."""
    schedules = [HAND_MADE["one_f_one_b_plus"](placement, number) for number in (64, 65)]
    period = schedules[1].makespan - schedules[0].makespan
    assert 1 - placement.load(0) / period == pytest.approx(bubble_rate)


def test_pipedream_is_1f1b_and_copies_of_a_stage_take_micro_batches_in_turn() -> None:
    """The dissertation's Fig. 2.7: a first stage of two workers, which take odd and even inputs."""
    assert pipedream(v_shape(4, 3, 7), 9) == one_f_one_b(v_shape(4, 3, 7), 9)
    halves = v_shape(2, 1, 2)
    longer = tuple(replace(b, time=2 * b.time) if b.name[1] == "0" else b for b in halves.blocks)
    schedule = validate(pipedream(replicated(replace(halves, blocks=longer), [2, 1]), 12))
    assert schedule.order(0)[:4] == (("F0@0", 0), ("F0@0", 2), ("B0@0", 0), ("F0@0", 4))
    assert schedule.order(2)[:4] == (("F1@0", 0), ("B1@0", 0), ("F1@0", 1), ("B1@0", 1))
    assert peak_memory(schedule).tolist() == [2, 2, 1]
    assert schedule.makespan == 12 * 3 + 2 * 3, "the second stage is never idle between its first and last"
    with pytest.raises(UnsuitablePlacementError, match="PipeDream needs a V-shape"):
        pipedream(x_shape(4), 8)


@pytest.mark.parametrize("name", ["one_f_one_b", "eager_one_f_one_b"])
def test_chains_that_are_alike_take_turns_as_more_micro_batches_of_one(name: str) -> None:
    """So modes of several micro-batches in a repetend have an order at once, once after 100 CPU seconds."""
    chain = CHAIN(4)
    twice = [
        replace(block, name=f"{block.name}.{i}", after=tuple(f"{name}.{i}" for name in block.after))
        for i in range(2)
        for block in chain.blocks
    ]
    both = replace(chain, blocks=tuple(twice))
    made = validate(HAND_MADE[name](both, 5))
    assert made.makespan == HAND_MADE[name](chain, 10).makespan
    crossing = replace(
        both, blocks=(*twice[:8], *(replace(b, devices=(3 - b.devices[0],)) for b in twice[8:]))
    )
    with pytest.raises(UnsuitablePlacementError, match="needs a V-shape"):
        HAND_MADE[name](crossing, 5)


@pytest.mark.parametrize("transfer", [1, 2])
def test_eager_one_f_one_b_hides_transfers(transfer: int) -> None:
    """A transfer of 1/4 or 1/2 of a forward block costs 1F1B 11.1 or 20 % in the steady state, eager none."""
    chain = with_transfer(v_shape(4, 4, 8), transfer)
    for name, rate in {"one_f_one_b": {1: 0.111, 2: 0.2}[transfer], "eager_one_f_one_b": 0.0}.items():
        some, more = (validate(HAND_MADE[name](chain, number)) for number in (64, 128))
        assert 1 - 12 * 64 / (more.makespan - some.makespan) == pytest.approx(rate, abs=1e-3)


@pytest.mark.parametrize("name", HOMES)
@pytest.mark.parametrize("devices", [2, 5, 6])
def test_every_hand_made_schedule_is_valid_for_any_number(name: str, devices: int) -> None:
    for make in HOMES[name]:
        if devices % 2 and make in (CROSS, SPLIT_CROSS):
            continue
        for number in [1, 2, 3, 5, 8, 12, 19]:
            try:
                schedule = HAND_MADE[name](make(devices), number)
            except UnsuitablePlacementError as error:
                assert "micro-batches, not" in str(error)
                assert number % devices or number < 2 * devices
                continue
            validate(schedule)


@pytest.mark.parametrize(
    ("group", "number", "expected"), [(4, 8, (28.5, 5.5)), (6, 12, (40.5, 6.5)), (8, 16, (52.5, 7.5))]
)
def test_interleaved_in_groups_takes_as_long_and_holds_half_of_each_more(
    group: int, number: int, expected: tuple[float, float]
) -> None:
    """2(p - 1) + (v - 1)g + 1 chunks on the first device, of v = 2 in a stage."""
    makespan, chunks = figures(interleaved_one_f_one_b(LOOP(4), number, group))
    assert (makespan / 2, chunks / 2) == expected
    assert chunks == 2 * 3 + group + 1


def test_groups_that_do_not_go_with_the_devices_are_refused() -> None:
    validate(interleaved_one_f_one_b(LOOP(4), 12, 8))
    for group, number, smallest in [(3, 12, 3), (8, 10, 2)]:
        with pytest.raises(UnsuitablePlacementError, match=f"in groups of {group} .* not {smallest}; change"):
            interleaved_one_f_one_b(LOOP(4), number, group)


@pytest.mark.parametrize(("seed", "name"), [*enumerate(HOMES)])
def test_a_placement_is_known_by_its_structure(name: str, seed: int) -> None:
    for make in HOMES[name]:
        plain = figures(HAND_MADE[name](make(4), 8))
        assert figures(HAND_MADE[name](disguised(make(4), seed), 8)) == plain


@pytest.mark.parametrize("name", HOMES)
def test_unsuitable_placements_are_refused_in_one_line(name: str) -> None:
    every = {make for makes in HOMES.values() for make in makes} | {
        SHAPES["k_shape"],
        partial(CHAIN, inference=True),
    }
    homes = [SHAPES["m_shape"], SHAPES["nn_shape"]] if name == "one_f_one_b_plus" else HOMES[name]
    for make in every:
        if not any(make(4) == home(4) for home in homes):
            with raises_line(UnsuitablePlacementError, match=r"^schedule: .* which \w+ is not; use .*=\w+$"):
                HAND_MADE[name](make(4), 8)


def test_a_split_backward_is_not_a_whole_one() -> None:
    with pytest.raises(UnsuitablePlacementError, match="with whole backward, which v_shape is not; use"):
        one_f_one_b(SPLIT_CHAIN(4), 4)
    with raises_line(UnsuitablePlacementError, match="with split backward, .* placement.split_backward="):
        HAND_MADE["zb_h1"](CHAIN(4), 4)


@pytest.mark.parametrize(
    ("num_devices", "num_chunks", "number", "makespan"),
    [(4, 2, 10, 69), (8, 2, 12, 93), (8, 2, 18, 129), (8, 4, 20, 261), (16, 2, 40, 285), (4, 2, 13, 87)],
)
def test_interleaved_meets_the_bound_where_the_devices_do_not_divide_the_micro_batches(
    num_devices: int, num_chunks: int, number: int, makespan: int
) -> None:
    placement = loop_shape(num_devices, num_chunks, 1, 2)
    schedule = validate(interleaved_one_f_one_b(placement, number))
    assert schedule.makespan == makespan_bound(placement, number) == makespan


@st.composite
def random_pipelines(draw: st.DrawFn) -> Placement:
    """One or two pipelines of stages on one or all devices, the second perhaps the first one's opposite."""
    num_devices = draw(st.integers(1, 4))
    some = st.sampled_from([*((d,) for d in range(num_devices)), tuple(range(num_devices))])
    chains = [
        draw(st.lists(some, min_size=1, max_size=6) | st.permutations([(d,) for d in range(num_devices)]))
    ]
    if draw(st.booleans()):
        chains.append(draw(st.just(chains[0][::-1]) | st.lists(some, min_size=1, max_size=6)))
    elif draw(st.booleans()):
        chains[0] = chains[0] + draw(st.sampled_from([chains[0], chains[0][::-1]]))
    is_split = draw(st.booleans())
    blocks: list[Block] = []
    for letter, chain in zip("ab", chains, strict=False):
        forward = [Block(f"{letter}F{i}", Kind.F, devices, 1, 1) for i, devices in enumerate(chain)]
        kind = Kind.I if is_split else Kind.B
        backward = [replace(f, name=f.name.replace("F", kind), kind=kind, memory=-1) for f in forward[::-1]]
        names = [block.name for block in forward + backward]
        for i, block in enumerate(forward + backward):
            time = draw(st.integers(1, 3))
            memory = 0 if block.kind is Kind.I else block.memory
            blocks.append(replace(block, time=time, memory=memory, after=tuple(names[max(i - 1, 0) : i])))
            if block.kind is Kind.I:
                blocks.append(Block(f"{block.name}W", Kind.W, block.devices, time, -1, (block.name,)))
    return Placement("pipelines", num_devices, tuple(blocks))


@settings(max_examples=50, deadline=None)
@given(random_placements() | random_pipelines(), st.integers(1, 9))
def test_applicable_on_any_placement(placement: Placement, number: int) -> None:
    """A hand-made schedule is refused or valid: the orders of the devices never make a cycle."""
    schedules = applicable(placement, number)
    assert "gpipe" in schedules
    for schedule in schedules.values():
        assert validate(schedule).num_micro_batches == number


def test_applicable_is_what_fits() -> None:
    wave = SPLIT_WAVE(4)
    assert set(applicable(wave, 8)) == {"gpipe", "zb_v", "v_half", "v_min", "dual_pipe_v"}
    assert set(applicable(wave.with_memory(8), 8)) == {"zb_v", "v_half", "v_min"}
    assert set(applicable(wave.with_memory(4), 8)) == {"v_min"}
    assert applicable(wave.with_memory(3), 8) == {}
    assert set(applicable(LOOP(4), 6)) == {"gpipe", "interleaved_one_f_one_b"}
    assert set(applicable(LOOP(4), 3)) == {"gpipe"}
    assert set(applicable(SHAPES["k_shape"](), 6)) == {"gpipe"}
