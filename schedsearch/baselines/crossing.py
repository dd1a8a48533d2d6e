"""The schedules that fill a device from both ends of a pipeline: Chimera, GEMS, DualPipe, ZB-V, Hanayo.

On an X-shape two pipelines run in opposite directions, and a micro-batch is one of each: the papers' N are
N / 2 here. On a wave the second half of the only pipeline does what the second pipeline would. D, the papers'
symbol, is the number of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

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

    def first_slot(n: int) -> int:
        return _first_slot(n, depth // 2, 2 * depth)

    return _by_slot(given, num_micro_batches, first_slot, first_slot)


@by_hand("Chimera with forward doubling", X)
def chimera_doubling(given: Given, num_micro_batches: int) -> Orders:
    """Return Chimera with forward doubling: no bubble in the steady state, twice the activations.

    A slot is as long as two forward blocks or one backward. A unit has D micro-batches of each direction:
    micro-batches 2q and 2q + 1 are forward at stage s in slot 2q + s, micro-batch j is backward in slot
    D + 2j + D - 1 - s, and the next unit begins 3D slots later.
    """
    depth = len(given.stages)
    return _by_slot(
        given,
        num_micro_batches,
        lambda n: _first_slot(n // 2, depth // 2, 3 * depth),
        lambda n: _first_slot(n, depth, 3 * depth),
    )


def _first_slot(index: int, unit: int, unit_slots: int) -> int:
    """Return where a unit of so many slots begins, and two slots later for each index in it."""
    return index // unit * unit_slots + 2 * (index % unit)


def _by_slot(
    given: Given, num_micro_batches: int, forward: Callable[[int], int], backward: Callable[[int], int]
) -> Orders:
    """Return orders by slots, from which a micro-batch's forward and its backward count."""
    last = 2 * len(given.stages) - 1
    slots = {}
    for chain in given.chains:
        for s, stage in enumerate(chain):
            for n in range(num_micro_batches):
                slots[stage.forward, n] = forward(n) + s, n, stage.forward
                slots[stage.backward, n] = backward(n) + last - s, n, stage.backward
    return in_slots(given.placement, slots)


@by_hand("GEMS", X)
def gems(given: Given, num_micro_batches: int) -> Orders:
    """Return GEMS: one micro-batch of each direction at a time, for the least memory.

    Every device runs forward and backward of one direction, then of the other; so it holds one activation.
    """
    chains, places = given.chains, range(len(given.stages))
    return in_slots(
        given.placement,
        {
            (name, n): (n, direction, is_backward)
            for n in range(num_micro_batches)
            for direction, chain in enumerate(chains)
            for i in places
            for is_backward, name in enumerate((chain[i].forward, chain[i].backward))
        },
    )


def _in_steps(near: BaselineStage, far: BaselineStage, steps: Iterable[str], number: int) -> list[Instance]:
    """Return a device's order, less the micro-batches from a number on.

    Args:
        near: Chunk 0.
        far: Chunk 1.
        steps: The next steps, each of the next micro-batch: ``F0`` is a forward of chunk 0, ``I0`` and
            ``W0`` are the halves of its backward, ``B0`` is both, ``W`` the oldest weight half.
        number: Micro-batches.
    """
    names = {"F0": near.forward, "I0": near.backward, "W0": str(near.weight)}
    names |= {"F1": far.forward, "I1": far.backward, "W1": str(far.weight)}
    count, waiting = dict.fromkeys(names, 0), list[str]()
    order = []
    for step in steps:
        for each in _HALVES.get(step, (step,)):
            half = each if each != "W" else waiting[0]
            if half[0] == "I":
                waiting.append("W" + half[1])
            elif half[0] == "W":
                waiting.remove(half)
            order.append((names[half], count[half]))
            count[half] += 1
    return [(name, n) for name, n in order if n < number]


_HALVES = {"B0": ("I0", "W0"), "B1": ("I1", "W1")}


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
    for place, (first, second) in enumerate(zip(down, up[::-1], strict=True)):
        mirrored = len(down) - 1 - place
        near, far = (first, second) if place < mirrored else (second, first)
        steps = _dual_pipe(min(place, mirrored), len(down) // 2, num_micro_batches)
        orders[first.device] = _in_steps(near, far, steps, num_micro_batches)
    return orders


@by_hand("DualPipeV", WAVE, split=True)
def dual_pipe_v(given: Given, num_micro_batches: int) -> Orders:
    """Return DualPipeV: the steps of a device of DualPipe with twice the devices, on a wave of two chunks.

    A device holds 2p + 1 chunks of p devices. As in `dual_pipe`, pairs are a forward block and a backward. It
    needs twice as many micro-batches as devices.
    """
    given.check_number(len(given.stages), num_micro_batches)
    return {
        device: _in_steps(
            near, far, _dual_pipe(d, len(given.by_device), num_micro_batches), num_micro_batches
        )
        for d, (device, (near, far)) in enumerate(given.by_device.items())
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
    for d, (device, (near, far)) in enumerate(given.by_device.items()):
        steps = ["F0"] * (2 * (num_devices - d) - 1) + ["F1", "F0"] * d + ["F1", "B1"] * (num_devices - d)
        while steps.count("F1") < most:
            steps += ["F0"] * (steps.count("F0") < most) + ["B0", "F1", "B1"]
        steps += ["I0", "I1"] * d + ["I0", "W0"] * (num_devices - d)
        for c in "10":
            steps += [f"W{c}"] * (most - steps.count(f"W{c}") - steps.count(f"B{c}"))
        orders[device] = _in_steps(near, far, steps, num_micro_batches)
    return orders


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
    free = dict.fromkeys(given.by_device, 0)
    orders: dict[int, list[Instance]] = {device: [] for device in free}
    tick = 0
    while num_micro_batches and min(place) < len(chain):
        for device in sorted(free):
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
        tick = min((each for each in (*free.values(), *ready) if each > tick), default=tick)
    return orders
