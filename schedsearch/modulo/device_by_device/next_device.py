"""Orders of a device's blocks that hold little, built block by block from those of the device before.

A forward waits for the device before, and so has an earliest start; a backward is waited for there, and so
has a latest one. What both wait beyond that, times their weights, is what the fullest device holds more for
this device. Blocks are placed in order of time, and of all beginnings of an order some are kept that wait
little, counted with what is due already. Compiled by numba, as a search asks for some hundred thousand
orders.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.graph.compiled import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]

_SLOTS = 1 << 13
"""Slots of a hash table with the beginnings of one length; above twice as many as there can be."""

_SAME = 2
"""Beginnings with the same blocks and as much idle time that are kept."""

_FINE = 64
"""Ticks of idle time that count as the same."""

_NEVER = 1 << 60
_FACTOR = np.uint64(1099511628211)
_MIX = np.uint64(0x9E3779B97F4A7C15)


class DeviceBlocks(NamedTuple):
    """What every device runs.

    Attributes:
        forward: For each role whether its block waits for that of the device before; else it is the other way
            round.
        ticks: From the start of the one that is waited for to that of the other, at least.
        time: Ticks of the block itself.
        weight: What the fullest device holds for a period while a micro-batch waits there.
    """

    forward: NDArray[np.bool_]
    ticks: Ints
    time: Ints
    weight: Ints


class Prices(NamedTuple):
    """What waiting costs.

    Attributes:
        of_tick: What a tick costs that a block of weight 1 waits.
        usual: Ticks that a message of each role usually waits until the last device.
        spread: Ticks by which it is more or less.
    """

    of_tick: float
    usual: Floats
    spread: float


class _Beginnings(NamedTuple):
    """Orders of which the first blocks are placed; two sets in turn.

    Attributes:
        cut: The role of which one block more or less is before the first; -1 for none.
        done: For each role the number of its next block; shape ``(2, beginnings, roles)``.
        end: Ticks at which the last block ends.
        waits: Ticks that blocks waited, times their weights.
        paid: What that costs.
        role: Role that was placed at each place in the order; shape ``(places, beginnings)``.
        back: The beginning that this one continues.
        start: Ticks.
    """

    cut: NDArray[np.int8]
    done: NDArray[np.int8]
    end: Ints
    waits: Ints
    paid: Floats
    role: NDArray[np.int8]
    back: NDArray[np.int16]
    start: Ints


class _Choices(NamedTuple):
    """Beginnings with one block more.

    Attributes:
        back: The beginning.
        role: Role of the block.
        start: Ticks.
        waits: As of beginnings.
        paid: Likewise.
        likely: What is paid and due.
        key: Same for the same blocks and about as much idle time.
        by_likely: A permutation.
        slot: Where choices of a key are; -1 for none.
        used: Slots that are used.
    """

    back: NDArray[np.int16]
    role: NDArray[np.int8]
    start: Ints
    waits: Ints
    paid: Floats
    likely: Floats
    key: Hashes
    by_likely: Ints
    slot: Ints
    used: Ints


class _Upcoming(NamedTuple):
    """When the blocks after the cut may start, each role's from the one before the cut on.

    Attributes:
        first: For each role the number of its first block after the cut.
        at: Earliest starts of forwards and latest of backwards; shape ``(roles, micro-batches + 3)``.
        slack: What each may wait until the last device.
        paid: What it would cost not to wait.
    """

    first: Ints
    at: Ints
    slack: Floats
    paid: Floats


@compiled
def price_of_late(slack: float, weight: int, usual: float, spread: float) -> float:
    """Return what it costs that a message has so few ticks left until the last device; see `Prices`."""
    if slack < -1:
        return 1000.0 + 10.0 * weight - 0.01 * slack
    share = (usual - slack) / spread + 0.5
    return weight * share * share if share > 0 else 0.0


@compiled
def next_orders(
    starts: Ints,
    anchors: Ints,
    blocks: DeviceBlocks,
    period: int,
    gap: int,
    max_waits: int,
    width: int,
    most: int,
    slack: Floats,
    prices: Prices,
    found: Ints,
    found_from: Ints,
    found_hash: Hashes,
) -> int:
    """Write orders of the next device for each of some orders of a device; return how many.

    Args:
        starts: Starts of the blocks of a device, of one period each; shape ``(orders, roles,
            micro-batches)``.
        anchors: For each order the forwards that may be the next order's first, which does not wait: number
            of role and micro-batch in one; shape ``(orders, anchors)``.
        blocks: What devices run.
        period: Ticks.
        gap: Ticks of a pause that is tried where none is needed.
        max_waits: Ticks that all blocks may wait for this device, times their weights.
        width: Beginnings of an order that are kept.
        most: Orders that are written for each anchor.
        slack: Ticks that each block may wait until the last device; infinite if unknown. As `starts`.
        prices: What waiting costs.
        found: Where to write the starts; shape ``(at least orders * anchors * most, roles, micro-batches)``.
        found_from: Where to write which order each continues.
        found_hash: Where to write a number that is the same for the same order, wherever it begins.
    """
    orders, roles, size = starts.shape
    length, choices_at_most = roles * size, width * roles * 2 + 1
    beginnings = _Beginnings(
        np.empty((2, width), np.int8),
        np.empty((2, width, roles), np.int8),
        np.empty((2, width), np.int64),
        np.empty((2, width), np.int64),
        np.empty((2, width)),
        np.empty((length, width), np.int8),
        np.empty((length, width), np.int16),
        np.empty((length, width), np.int64),
    )
    choices = _Choices(
        np.empty(choices_at_most, np.int16),
        np.empty(choices_at_most, np.int8),
        np.empty(choices_at_most, np.int64),
        np.empty(choices_at_most, np.int64),
        np.empty(choices_at_most),
        np.empty(choices_at_most),
        np.empty(choices_at_most, np.uint64),
        np.empty(choices_at_most, np.int64),
        np.full((_SLOTS, _SAME), -1, np.int64),
        np.empty(choices_at_most, np.int64),
    )
    upcoming = _Upcoming(
        np.empty(roles, np.int64),
        np.empty((roles, size + 3), np.int64),
        np.empty((roles, size + 3)),
        np.empty((roles, size + 3)),
    )
    place, word = np.empty(length, np.int64), np.empty(length, np.uint64)
    idle = period - size * blocks.time.sum()
    count = 0
    for order in range(orders):
        for anchor in anchors[order]:
            role = anchor // size
            begin = starts[order, role, anchor % size] + blocks.ticks[role]
            _look_ahead(starts[order], slack[order], blocks, period, begin, prices, upcoming)
            kept = _begin(begin, role, blocks, upcoming, beginnings)
            for level in range(1, length):
                made = _continue(
                    kept, level, begin, idle, gap, max_waits, blocks, prices, upcoming, beginnings, choices
                )
                kept = min(made, width)
                _keep(made, kept, level, blocks, beginnings, choices)
            now = (length - 1) % 2
            for i in range(kept):
                choices.by_likely[i] = i
                choices.likely[i] = beginnings.paid[now, i]
            if kept > most:
                _least_first(choices.likely, choices.by_likely, kept, most)
            for i in range(min(kept, most)):
                last = choices.by_likely[i]
                _write(last, now, blocks, period, gap, upcoming, beginnings, place, word, found[count])
                found_hash[count] = _same_for_rotations(word)
                found_from[count] = order
                count += 1
    return count


@compiled
def _look_ahead(
    starts: Ints,
    slack: Floats,
    blocks: DeviceBlocks,
    period: int,
    begin: int,
    prices: Prices,
    upcoming: _Upcoming,
) -> None:
    """Find each role's blocks from a moment on."""
    roles, size = starts.shape
    for role in range(roles):
        shift = blocks.ticks[role] if blocks.forward[role] else -blocks.ticks[role]
        number = ((begin - starts[role, 0] - shift) // period - 1) * size
        while starts[role, number % size] + number // size * period + shift < begin:
            number += 1
        upcoming.first[role] = number
        for i in range(size + 3):
            number = upcoming.first[role] + i - 1
            left = slack[role, number % size]
            upcoming.at[role, i] = starts[role, number % size] + number // size * period + shift
            upcoming.slack[role, i] = left
            upcoming.paid[role, i] = price_of_late(
                left, blocks.weight[role], prices.usual[role], prices.spread
            )


@compiled
def _first(role: int, cut: int, forward: bool) -> int:
    """Return which of the upcoming blocks of a role is its first in the order."""
    if role != cut:
        return 1
    return 0 if forward else 2


@compiled
def _begin(
    begin: int, anchor: int, blocks: DeviceBlocks, upcoming: _Upcoming, beginnings: _Beginnings
) -> int:
    """Begin with one block, and with each role that may have a block over the cut; return how many."""
    width, roles = beginnings.cut.shape[1], len(blocks.time)
    end = begin + blocks.time[anchor]
    count = 0
    for cut in range(-1, roles):
        fits = cut != anchor and count < width
        for role in range(roles if fits else 0):
            i = _first(role, cut, blocks.forward[role]) + (1 if role == anchor else 0)
            beginnings.done[0, count, role] = i
            fits &= blocks.forward[role] or upcoming.at[role, i] >= end
        if fits:
            beginnings.cut[0, count] = cut
            beginnings.end[0, count] = end
            beginnings.waits[0, count] = 0
            beginnings.paid[0, count] = 0.0
            beginnings.role[0, count] = anchor
            beginnings.start[0, count] = begin
            count += 1
    return count


@compiled
def _continue(
    count: int,
    level: int,
    begin: int,
    idle: int,
    gap: int,
    max_waits: int,
    blocks: DeviceBlocks,
    prices: Prices,
    upcoming: _Upcoming,
    beginnings: _Beginnings,
    choices: _Choices,
) -> int:
    """Place one block more after each beginning, in all ways that can be continued; return how many."""
    forward, time, weight = blocks.forward, blocks.time, blocks.weight
    of_tick, usual, spread = prices.of_tick, prices.usual, prices.spread
    upcoming_at, slack, paid_anyhow = upcoming.at, upcoming.slack, upcoming.paid
    done, slots, keys, chosen_likely = beginnings.done, choices.slot, choices.key, choices.likely
    roles, size = len(time), upcoming_at.shape[1] - 3
    now = (level - 1) % 2
    made, marks = 0, 0
    guided = slack[0, 1] < np.inf
    for old in range(count):
        cut, end = beginnings.cut[now, old], beginnings.end[now, old]
        waited, paid_before = beginnings.waits[now, old], beginnings.paid[now, old]
        idled = end - begin
        placed = np.uint64(cut + 1) * _MIX
        urgent, latest, latest_of_others = -1, _NEVER, _NEVER
        for role in range(roles):
            first, i = _first(role, cut, forward[role]), done[now, old, role]
            idled -= (i - first) * time[role]
            placed = (placed + np.uint64(i)) * _FACTOR
            if not forward[role] and i < first + size:
                at = upcoming_at[role, i]
                if at < latest:
                    urgent, latest, latest_of_others = role, at, latest
                elif at < latest_of_others:
                    latest_of_others = at
        one_more = np.uint64(1)
        for role in range(roles - 1, -1, -1):
            one_more *= _FACTOR
            i, last = done[now, old, role], _first(role, cut, forward[role]) + size - 1
            if i > last:
                continue
            at = upcoming_at[role, i]
            missing = max(at - end, 0) if forward[role] else 0
            for more in range(2):
                pause = missing
                if more:
                    pause = missing + gap if missing >= gap else gap
                start = end + pause
                over = start + time[role]
                if idled + pause > idle or (not forward[role] and start > at):
                    break
                if (latest_of_others if role == urgent else latest) < over:
                    break
                if not forward[role] and i < last and upcoming_at[role, i + 1] < over:
                    break
                own = start - at if forward[role] else at - start
                due = waits = waited + weight[role] * own
                late = price_of_late(slack[role, i] - own, weight[role], usual[role], spread)
                paid = paid_before + weight[role] * own * of_tick + late - paid_anyhow[role, i]
                likely = paid
                for other in range(roles):
                    if not forward[other]:
                        continue
                    j = done[now, old, other] + (1 if other == role else 0)
                    end_of_role = min(j + 2, _first(other, cut, True) + size)
                    while j < end_of_role and upcoming_at[other, j] < over:
                        own = over - upcoming_at[other, j]
                        due += weight[other] * own
                        likely += weight[other] * own * of_tick
                        if guided:
                            late = price_of_late(slack[other, j] - own, weight[other], usual[other], spread)
                            likely += late - paid_anyhow[other, j]
                        j += 1
                if due > max_waits:
                    continue
                key = placed + one_more + np.uint64((idled + pause) // _FINE) * _MIX
                slot = np.int64((key * _MIX) >> np.uint64(51))
                while slots[slot, 0] >= 0 and keys[slots[slot, 0]] != key:
                    slot = (slot + 1) % _SLOTS
                one, two = slots[slot, 0], slots[slot, 1]
                if one < 0 or two < 0:
                    to = made
                    slots[slot, 0 if one < 0 else 1] = to
                    if one < 0:
                        choices.used[marks] = slot
                        marks += 1
                    made += 1
                else:
                    to = one if chosen_likely[one] > chosen_likely[two] else two
                    if likely >= chosen_likely[to]:
                        continue
                choices.back[to] = old
                choices.role[to] = role
                choices.start[to] = start
                choices.waits[to] = waits
                choices.paid[to] = paid
                chosen_likely[to] = likely
                keys[to] = key
    for mark in range(marks):
        for same in range(_SAME):
            slots[choices.used[mark], same] = -1
    return made


@compiled
def _keep(
    made: int, kept: int, level: int, blocks: DeviceBlocks, beginnings: _Beginnings, choices: _Choices
) -> None:
    """Make the likeliest choices the next beginnings."""
    before, now = (level - 1) % 2, level % 2
    for i in range(made):
        choices.by_likely[i] = i
    if made > kept:
        _least_first(choices.likely, choices.by_likely, made, kept)
    for i in range(kept):
        choice = choices.by_likely[i]
        old, role = choices.back[choice], choices.role[choice]
        for other in range(len(blocks.time)):
            beginnings.done[now, i, other] = beginnings.done[before, old, other]
        beginnings.done[now, i, role] += 1
        beginnings.cut[now, i] = beginnings.cut[before, old]
        beginnings.end[now, i] = choices.start[choice] + blocks.time[role]
        beginnings.waits[now, i] = choices.waits[choice]
        beginnings.paid[now, i] = choices.paid[choice]
        beginnings.role[level, i] = role
        beginnings.back[level, i] = old
        beginnings.start[level, i] = choices.start[choice]


@compiled
def _least_first(value: Floats, index: Ints, count: int, wanted: int) -> None:
    """Order indices such that the wanted number with the least values come first (quickselect)."""
    low, high = 0, count - 1
    while low < high:
        pivot = value[index[(low + high) // 2]]
        i, j = low, high
        while i <= j:
            while value[index[i]] < pivot:
                i += 1
            while value[index[j]] > pivot:
                j -= 1
            if i <= j:
                index[i], index[j] = index[j], index[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            return


@compiled
def _write(
    last: int,
    now: int,
    blocks: DeviceBlocks,
    period: int,
    gap: int,
    upcoming: _Upcoming,
    beginnings: _Beginnings,
    place: Ints,
    word: Hashes,
    found: Ints,
) -> None:
    """Write the starts of a whole order, and its roles and pauses one after another."""
    roles, size = found.shape
    length, cut = roles * size, beginnings.cut[now, last]
    for level in range(length - 1, -1, -1):
        place[level] = last
        last = beginnings.back[level, last]
    number = upcoming.first.copy()
    for role in range(roles):
        number[role] += _first(role, cut, blocks.forward[role]) - 1
    for level in range(length):
        role, start = beginnings.role[level, place[level]], beginnings.start[level, place[level]]
        found[role, number[role] % size] = start - number[role] // size * period
        number[role] += 1
        if level + 1 < length:
            then = beginnings.start[level + 1, place[level + 1]]
        else:
            then = beginnings.start[0, place[0]] + period
        pauses = (then - start - blocks.time[role]) // gap
        word[level] = np.uint64(role + roles * pauses + 1) * _MIX


@compiled
def _same_for_rotations(word: Hashes) -> np.uint64:
    """Return a hash of a cyclic word: the least of the hashes of its rotations."""
    hashed, power = np.uint64(0), np.uint64(1)
    for letter in word:
        hashed = hashed * _FACTOR + letter
        power = power * _FACTOR
    least = hashed
    for letter in word:
        hashed = hashed * _FACTOR + letter - letter * power
        least = min(least, hashed)
    return least
