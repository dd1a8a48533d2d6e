"""A schedule as programs: a send where a block's tensor leaves its device, a receive where one comes.

And programs as a schedule again, of which more can be told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from placements import Kind, Placement
from placements.copies.replicas import copies_in
from runtime.program.data_parallel import coordinate, crosses_nodes, holders, part_for
from runtime.program.error_grid import all_of
from runtime.program.instructions import Instruction, Programs, Receive, Run, Send
from runtime.program.tensor_flow import (
    KEEP,
    RECOMPUTE,
    UnrunnablePlacementError,
    computed_again,
    computes_loss,
    forward_consumers,
    forward_inputs,
    pair_backward,
    stage_decisions,
    tensor_inputs,
)
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible

SCATTER = ("auto", "always", "never")
"""When tensors go in parts from team to team: between nodes, wherever they can, or never."""


class Route(NamedTuple):
    """The way of a producer's output or gradient to a consumer, the same for every micro-batch."""

    producer: str
    consumer: str
    source: int
    target: int


def messages(placement: Placement) -> tuple[Route, ...]:
    """Return the routes of the messages of one micro-batch.

    A block's output is the same on all its devices, or on all of one group (`runtime.program.data_parallel`).
    A consumer's device that is among them has it at hand; each other one gets one copy, and they take turns
    in sending.

    An `after` that carries no tensor makes no message, across devices neither: there only the schedule's
    times keep the order, not the programs. An empty message would enforce it, but make a device wait for
    something that no result depends on.

    Raises:
        UnrunnablePlacementError: See `runtime.program.tensor_flow.pair_backward`.
    """
    routes, by_name = [], placement.by_name
    for consumer, producers in tensor_inputs(placement).items():
        for producer in producers:
            for i, target in enumerate(by_name[consumer].devices):
                sources = holders(by_name[producer], by_name[consumer], target)
                if target not in sources:
                    routes.append(Route(producer, consumer, sources[i % len(sources)], target))
    return tuple(routes)


def lower(schedule: Schedule, *, is_batch: bool = False) -> Programs:
    """Return the programs of a schedule: each device's share of one global order (Tessel, Sec. IV-D).

    The order holds the run of every block at its start, and every message as one operator (its send and
    its receive at once) at the end of its producer. At one tick, messages come before runs, and lower
    devices before higher ones. The first unfinished operator of a global order can always proceed, so
    nothing ever waits in a cycle, even where every operation blocks. Tessel places a message by the slot
    in which its producer starts; we place it where the producer ends, because then the tensor exists, and
    a long block cannot hold up the message of a short one that started later.

    A forward block runs in the mode that the schedule has chosen for it and its micro-batch, and where it
    takes a copy of a stage, nothing goes to the other copies. The streams of
    a device share its program, so that all of them keep this order; see `runtime.program.deadlock`.

    Args:
        schedule: A valid schedule; see `schedsearch.validate.validate`. Where a device of its placement
            stands for several GPUs, each of them has a program, as a device of `Placement.by_gpu`.
        is_batch: Whether the choices of its placement's one decision are micro-batches that differ, as in
            `schedsearch.unequal.micro_batches`, and no modes.

    Raises:
        UnrunnablePlacementError: See `pair_backward` and `stage_decisions` of `runtime.program.tensor_flow`;
            or a micro-batch leaves out a block.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import gpipe
    >>> print(lower(gpipe(v_shape(2), 1)))
    device 0
        run F0 #0
        send F0 -> F1 #0 to 1
        receive B1 -> B0 #0 from 1
        run B0 #0
    device 1
        receive F0 -> F1 #0 from 0
        run F1 #0
        run B1 #0
        send B1 -> B0 #0 to 0
    """
    schedule = replace(schedule, placement=schedule.placement.by_gpu)
    placement, chosen = schedule.placement, schedule.chosen
    if is_batch:
        check_batch(placement)
    decided = {} if is_batch else stage_decisions(placement)
    again = computed_again(placement)
    routes: dict[str, list[Route]] = {block.name: [] for block in placement.blocks}
    for route in messages(placement):
        routes[route.producer].append(route)
    runs = {(run.block, run.micro_batch) for run in schedule.blocks}
    operators: list[tuple[_Place, tuple[tuple[int, Instruction], ...]]] = []
    for start, n, name in schedule.blocks:
        block = schedule.block(name, n)
        mode = RECOMPUTE if name in again else KEEP
        if name in decided:
            mode = placement.decisions[decided[name]].names[chosen[n][decided[name]]]
        run = Run(name, n, mode, placement.by_name[name].stream)
        operators.append(
            ((start, True, block.devices, n, name, name), tuple((d, run) for d in block.devices))
        )
        for _, consumer, source, target in routes[name]:
            if (consumer, n) in runs:
                place = (start + block.time, False, (source, target), n, consumer, name)
                ends = (source, Send(name, consumer, n, target)), (target, Receive(name, consumer, n, source))
                operators.append((place, ends))
    instructions: list[list[Instruction]] = [[] for _ in range(placement.num_devices)]
    for _, at_devices in sorted(operators, key=itemgetter(0)):
        for device, instruction in at_devices:
            instructions[device].append(instruction)
    batch = tuple(choice[0] for choice in chosen) if is_batch else ()
    return Programs(placement, schedule.num_micro_batches, tuple(map(tuple, instructions)), batch=batch)


_Place = tuple[int, bool, tuple[int, ...], int, str, str]
"""Place in the global order: tick, whether it is a run, devices, micro-batch, consumer or block, producer."""


def check_batch(placement: Placement) -> None:
    """Ensure that every micro-batch of a batch can do without the blocks that it leaves out.

    A forward and its backward are left out together. A block that runs has an input and is used, and each
    loss runs.
    """
    plain = replace(placement, decisions=())
    pairs = pair_backward(plain)
    for choice in placement.decisions[0].choices:
        gone = {block.name for block in choice.blocks if not block.time}
        for name in [block.name for block in placement.topological_order if block.kind is not Kind.O]:
            forward = pairs.get(name, name)
            inputs, consumers = forward_inputs(plain, name), forward_consumers(plain, name)
            lacks, why = "", ""
            if (name in gone) != (forward in gone):
                lacks, why = (name if name in gone else forward), f"{forward} and {name} go together"
            elif name not in gone and name == forward and inputs and gone.issuperset(inputs):
                lacks, why = inputs[0], f"{name} then has no input"
            elif name not in gone and name == forward and consumers and gone.issuperset(consumers):
                lacks, why = consumers[0], f"{name} then is of no use"
            elif name in gone and computes_loss(plain, name):
                lacks, why = name, "it computes the loss"
            if lacks:
                raise UnrunnablePlacementError(
                    f"search.micro_batches: {lacks} does not run {choice.name}, where its time is 0, but "
                    f"{why}; give it a time above 0"
                )


class CopiesUpdate(NamedTuple):
    """An update within an iteration, as one copy of a stage makes it together with the others.

    Attributes:
        stage: Name of the stage's forward block.
        number: Number of the update, from 1 on.
        last: Block and micro-batch whose gradients the copy adds last.
        next: Block and micro-batch of the stage that the copy runs next; it waits for the update.
    """

    stage: str
    number: int
    last: Instance
    next: Instance


def copy_updates(placement: Placement, order: Iterable[Instance], per_update: int) -> Iterator[CopiesUpdate]:
    """Yield the updates that a device makes together with other copies, but for the last of an iteration.

    `per_update` is the number of micro-batches of each copy that make an update.
    """
    copies, pairs = copies_in(placement), pair_backward(placement)
    alone = Counter(copy.stage for copy in copies.values())
    done: Counter[str] = Counter()
    last: dict[str, Instance] = {}
    for name, n in order:
        forward = pairs.get(name, name)
        if not copies or alone[stage := copies[forward].stage] == 1:
            continue
        if stage in last:
            yield CopiesUpdate(stage, done[stage] // per_update, last.pop(stage), (name, n))
        if placement.by_name[name].kind in (Kind.B, Kind.W):
            done[stage] += 1
            if done[stage] % per_update == 0:
                last[stage] = name, n


def with_updates(schedule: Schedule, micro_batches_per_update: int) -> Schedule:
    """Return a schedule in the same orders, in which copies of a stage wait for each other at each update.

    Raises:
        CyclicOrderError: They wait for each other in a cycle.
    """
    placement = schedule.placement
    orders = [schedule.order(device) for device in range(placement.num_devices)]
    of_each: dict[tuple[str, int], list[CopiesUpdate]] = {}
    for order in orders:
        for update in copy_updates(placement, order, micro_batches_per_update):
            of_each.setdefault((update.stage, update.number), []).append(update)
    waits = [
        (other.last, update.next, schedule.block(*other.last).time)
        for together in of_each.values()
        for update in together
        for other in together
        if other is not update
    ]
    if not waits:
        return schedule
    return as_soon_as_possible(placement, schedule.num_micro_batches, orders, schedule.chosen, waits)


def scattered(programs: Programs, scatter: str) -> Programs:
    """Return programs in which tensors go in parts to blocks that several devices compute together.

    Each of them receives a part and they gather the whole, so that less goes from team to team. That pays
    where the link between the teams is slower than those of the team that gathers: between nodes.

    Args:
        programs: Of whole tensors.
        scatter: One of `SCATTER`.
    """
    by_name, placement = programs.placement.by_name, programs.placement

    def changed(device: int, instruction: Instruction) -> Instruction:
        if isinstance(instruction, Run):
            return instruction
        target = instruction.target if isinstance(instruction, Send) else device
        ends = by_name[instruction.producer], by_name[instruction.consumer]
        team = coordinate(ends[1], target).team
        pays = scatter == "always" or crosses_nodes(placement, holders(*ends, target), team)
        return replace(instruction, part=part_for(*ends, target) if pays else None)

    return programs if scatter == "never" else programs.changed(changed)


def scattered_in_words(programs: Programs) -> str:
    """Return which tensors go in parts, and which whole; empty if none goes in parts."""
    ways = {(receive.producer, receive.consumer): receive.part for _, receive in all_of(programs, Receive)}
    parts = [f"{producer} -> {consumer} in {part[1]}" for (producer, consumer), part in ways.items() if part]
    whole = [f"{producer} -> {consumer}" for (producer, consumer), part in ways.items() if not part]
    if not parts:
        return ""
    return f"parts of tensors: {', '.join(parts)}" + (f"; whole: {', '.join(whole)}" if whole else "")


class RecomputeError(ValueError):
    """Blocks cannot be computed again; the message says why, with the remedy, in one line."""


def recomputed(programs: Programs, recompute: str | Sequence[object]) -> Programs:
    """Return programs in which some forward blocks are computed again; see `blocks_to_recompute`."""
    again = blocks_to_recompute(programs.decided, recompute)

    def changed(_: int, step: Instruction) -> Instruction:
        return replace(step, mode=RECOMPUTE) if isinstance(step, Run) and step.block in again else step

    return programs.changed(changed)


def blocks_to_recompute(placement: Placement, recompute: str | Sequence[object]) -> tuple[str, ...]:
    """Return the forward blocks to compute again in every micro-batch, given their names, or ``all``.

    Raises:
        RecomputeError: There is no such forward block, or the schedule decides on its mode.
    """
    forward = [block.name for block in placement.blocks if block.kind is Kind.F]
    if isinstance(recompute, str) and recompute != "all":
        raise RecomputeError(f"recompute: {recompute!r} is not 'all' or a list of names of forward blocks")
    names = forward if recompute == "all" else list(recompute)
    decision_of = stage_decisions(placement) if names else {}
    for name in names:
        if name not in forward:
            raise RecomputeError(
                f"recompute: {placement.name} has no forward block {name!r}; use 'all' or of "
                f"{', '.join(sorted(forward))}"
            )
        if name in decision_of:
            raise RecomputeError(
                f"recompute: modes[{decision_of[str(name)]}] of the placement is about {name}, whose mode "
                "the schedule chooses; leave it out"
            )
    return tuple(map(str, names))


def device_orders(programs: Programs) -> list[list[Instance]]:
    """Return the (block, micro-batch) pairs that each device runs, in order."""
    return [
        [(run.block, run.micro_batch) for run in program if isinstance(run, Run)]
        for program in programs.instructions
    ]


def by_lane(placement: Placement, orders: Sequence[Sequence[Instance]]) -> list[list[Instance]]:
    """Return the order of each lane of a placement, given the order of each device."""
    return [
        [instance for instance in orders[device] if placement.by_name[instance[0]].stream == stream]
        for device, stream in placement.lanes
    ]


def schedule_of(programs: Programs) -> Schedule:
    """Return the schedule of safe programs: every block as soon as its order and its inputs allow."""
    number, orders = programs.num_micro_batches, by_lane(programs.placement, device_orders(programs))
    return as_soon_as_possible(programs.placement, number, orders, programs.chosen)


def overfull(programs: Programs) -> tuple[int, int, int] | None:
    """Return the first device that holds more than its memory, with both numbers; None if all fit."""
    peaks = peak_memory(schedule_of(programs)).tolist()
    rows = zip(peaks, programs.placement.memory or peaks, strict=True)
    return next(((device, held, has) for device, (held, has) in enumerate(rows) if held > has), None)
