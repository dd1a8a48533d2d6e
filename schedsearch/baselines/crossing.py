"""The schedules that fill a device from both ends of a pipeline: Chimera, DualPipe, ZB-V, STP, Hanayo.

On an X-shape two pipelines run in opposite directions, and a micro-batch is one of each: the papers' N are
N / 2 here. On a wave the second half of the only pipeline does what the second pipeline would. D, the papers'
symbol, is the number of devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schedsearch.baselines.structure import (
    WAVE,
    WAVES,
    BaselineStage,
    Given,
    Orders,
    X,
    by_hand,
    in_slots,
)
from schedsearch.schedule import Instance


@by_hand("Chimera", X)
def chimera(given: Given, num_micro_batches: int) -> Orders:
    """Return Chimera with direct concatenation, in units of D micro-batches (Chimera; Tessel, Sec. VI-A).

    A unit has D / 2 micro-batches of each direction. Micro-batch j of it is forward at stage s in slot
    2j + s, and backward in slot D + 2j + D - 1 - s; the next unit begins 2D slots later. No two blocks of
    a device share a slot, and only their order is kept. An incomplete last unit lacks its last micro-batches.
    """
    depth = len(given.stages)
    slots = {}
    for chain in given.chains:
        for s, stage in enumerate(chain):
            for n in range(num_micro_batches):
                unit, j = divmod(n, depth // 2)
                first = 2 * depth * unit + 2 * j
                slots[stage.forward, n] = first + s, n, stage.forward
                slots[stage.backward, n] = first + 2 * depth - 1 - s, n, stage.backward
    return in_slots(given.placement, slots)


def _in_steps(pair: Sequence[BaselineStage], steps: Iterable[str], number: int) -> list[Instance]:
    """Return a device's order by steps, with only the first `number` micro-batches.

    Args:
        pair: Chunks 0 and 1.
        steps: The next steps, each of the next micro-batch: ``F0`` is a forward of chunk 0, ``I0`` and
            ``W0`` are the halves of its backward, ``B0`` is both, ``W`` the oldest weight half.
        number: Micro-batches.
    """
    near, far = pair
    names = {"F0": near.forward, "I0": near.backward, "W0": str(near.weight)}
    names |= {"F1": far.forward, "I1": far.backward, "W1": str(far.weight)}
    count, waiting = dict.fromkeys(names, 0), list[str]()
    order = []
    for step in steps:
        for half in (f"I{step[1]}", f"W{step[1]}") if step[0] == "B" else (step,):
            half = waiting[0] if half == "W" else half
            if half[0] == "I":
                waiting.append(f"W{half[1]}")
            elif half[0] == "W":
                waiting.remove(half)
            order.append((names[half], count[half]))
            count[half] += 1
    return [(name, n) for name, n in order if n < number]


def _dual_pipe(rank: int, half: int, num_micro_batches: int) -> list[str]:
    """Return DualPipe's eight steps for the device that is `rank` from its end of 2 `half` devices."""
    rest = half - rank - 1
    return [
        *["F0"] * (2 * rest),
        *["F0", "F1"] * (rank + 1),
        *["I1", "W", "F1"] * rest,
        *["F0", "B1", "F1", "B0"] * (num_micro_batches - 2 * half + rank + 1),
        *["B1", "F1", "B0"] * rest,
        *(f"{'B' if i <= rank else 'I'}{1 - i % 2}" for i in range(2 * (rank + 1))),
        *["W", "I0"] * rest,
        *["W"] * (rank + 1),
    ]


@by_hand("DualPipe", X, split=True)
def dual_pipe(given: Given, num_micro_batches: int) -> Orders:
    """Return DualPipe (DeepSeek-V3), its forward-and-backward pairs run as two blocks, the forward first.

    Every device holds p + 1 activations of p devices. The pairs of the original are one kernel that overlaps
    communication; here they are blocks one after the other, which halves the idle time of its formula. It
    needs as many micro-batches as devices.
    """
    down, up = given.chains
    given.check_number(len(down), num_micro_batches)
    orders = {}
    for place, pair in enumerate(zip(down, up[::-1], strict=True)):
        rank = min(place, len(down) - 1 - place)
        steps = _dual_pipe(rank, len(down) // 2, num_micro_batches)
        orders[pair[0].device] = _in_steps(pair[:: 1 if place == rank else -1], steps, num_micro_batches)
    return orders


@by_hand("DualPipeV", WAVE, split=True)
def dual_pipe_v(given: Given, num_micro_batches: int) -> Orders:
    """Return DualPipeV: the steps of a device of DualPipe with twice the devices, on a wave of two chunks.

    A device holds 2p + 1 chunks of p devices. As in `dual_pipe`, pairs are a forward block and a backward. It
    needs twice as many micro-batches as devices.
    """
    given.check_number(len(given.stages), num_micro_batches)
    return {
        device: _in_steps(pair, _dual_pipe(d, len(given.by_device), num_micro_batches), num_micro_batches)
        for d, (device, pair) in enumerate(given.by_device.items())
    }


@by_hand("ZB-V", WAVE, split=True)
def zb_v(given: Given, num_micro_batches: int) -> Orders:
    """Return ZB-V: two chunks per device, no idle time between a device's first block and its last.

    Of a device, 0 is the chunk on the way down and 1 that on the way up; I and W are the halves of a backward
    B. Device d of p runs: 2(p - d) - 1 times F0; d times F1 F0; p - d times F1 B1; then F0 B0 F1 B1 until all
    forward blocks are done; d times I0 I1; p - d times I0 W0; and the weight halves that remain. The rule is
    of blocks that take equally long, and needs 2p - 1 micro-batches; of fewer it is the order without those
    that are missing.
    """
    num_devices = len(given.by_device)
    most = max(num_micro_batches, 2 * num_devices - 1)
    orders = {}
    for d, (device, pair) in enumerate(given.by_device.items()):
        steps = ["F0"] * (2 * (num_devices - d) - 1) + ["F1", "F0"] * d + ["F1", "B1"] * (num_devices - d)
        while steps.count("F1") < most:
            steps += ["F0"] * (steps.count("F0") < most) + ["B0", "F1", "B1"]
        steps += ["I0", "I1"] * d + ["I0", "W0"] * (num_devices - d)
        for c in "10":
            steps += [f"W{c}"] * (most - steps.count(f"W{c}") - steps.count(f"B{c}"))
        orders[device] = _in_steps(pair, steps, num_micro_batches)
    return orders


def _stp(rank: int, num_devices: int, num_micro_batches: int) -> list[str]:
    """Return STP's steps for a device, the input half of each pair before its forward."""
    rest, pairs = num_devices - rank - 1, 2 * (num_micro_batches - 3 * num_devices + 1) + 1
    whole, split = [["I1", "F1", "W"], ["I0", "F0", "W"]], [["I1", "F1"], ["I0", "F0"]]
    return [
        *["F0"] * (2 * rest),
        *["F0", "F1"] * (rank + 1),
        *["F0"] * (rank + 1),
        *["I1", "F1", "F0", "W"] * rest,
        *(step for i in range(pairs + 2 * rank) for step in (whole if i < pairs + rank else split)[i % 2]),
        *["B0", "I1", "F1"] * (2 * num_devices - 2 - rank),
        *["B0", "B1"] * (rank + 1),
        *["B0", *["W", "W", "B0"] * rest],
        *["W"] * (2 * rank),
    ]


@by_hand("STP", WAVE, split=True)
def stp(given: Given, num_micro_batches: int) -> Orders:
    """Return STP (Qi et al., 2025): pairs of a backward and a forward hide each other's exchanges.

    The order is that of the authors' program; the original braids a pair's operators, and here its exchanges
    run beside the next blocks. A device of p holds 3p chunks until their input halves end. Where weight
    halves release memory, one that would come later runs before a forward that lacks it.
    """
    num_devices, free = len(given.by_device), given.placement.free_memory
    most = max(num_micro_batches, 3 * num_devices - 1)
    orders = {}
    for rank, (device, pair) in enumerate(given.by_device.items()):
        order = _in_steps(pair, _stp(rank, num_devices, most), num_micro_batches)
        orders[device] = order if free is None else _with_room(given, device, order, free[device])
    return orders


def _with_room(given: Given, device: int, order: Sequence[Instance], room: int) -> list[Instance]:
    """Return a device's order with weight halves earlier, the oldest first, where a forward lacks memory."""
    units = {block.name: block.memory_on(device) for block in given.placement.on(device)}
    weight_of = {stage.backward: str(stage.weight) for stage in given.by_device[device]}
    waiting, done, held = list[Instance](), list[Instance](), 0
    for name, n in order:
        while waiting and held + units[name] > room:
            done.append(waiting.pop(0))
            held += units[done[-1][0]]
        if (name, n) in waiting:
            waiting.remove((name, n))
        elif name in weight_of.values():
            continue  # it ran earlier
        if name in weight_of:
            waiting.append((weight_of[name], n))
        done.append((name, n))
        held += units[name]
    return done


@by_hand("Hanayo", WAVES)
def hanayo(given: Given, num_micro_batches: int) -> Orders:
    """Return a wave in which every device runs a backward block if one is ready, else a forward block.

    Of several the one of the earliest micro-batch. On p devices, a micro-batch begins when fewer than p
    others have begun and have more than their last backward block left. The authors' generator is not public;
    their regime is one of as many micro-batches as devices: then W waves have about a W-th of the idle time
    of one.
    """
    stages = given.stages
    down = [(stage.forward, stage.device, 1) for stage in stages]
    chain = [*down, *((stage.backward, stage.device, 2) for stage in reversed(stages))]
    place, ready = [0] * num_micro_batches, [0] * num_micro_batches
    free = dict.fromkeys(sorted(given.by_device), 0)
    orders: dict[int, list[Instance]] = {device: [] for device in free}
    tick = 0
    while num_micro_batches and min(place) < len(chain):
        for device in free:
            in_flight = sum(0 < at < len(chain) - 1 for at in place)
            can_run = [
                (at < len(stages), n)
                for n, at in enumerate(place)
                if at < len(chain) and chain[at][1] == device and ready[n] <= tick
                if at > 0 or in_flight < len(free)
            ]
            if can_run and free[device] <= tick:
                _, n = min(can_run)
                name, _, ticks = chain[place[n]]
                orders[device].append((name, n))
                place[n] += 1
                free[device] = ready[n] = tick + ticks
        tick = min((later for later in (*free.values(), *ready) if later > tick), default=tick)
    return orders
