"""Shorter periods for rings of many devices under tight memory: a beam search from device to device.

It begins with many orders of the first device and builds from each the orders of the next (`next_device`);
those that hold least, and can still come back to the first device's order (`ring_closing`), are carried on.
Where memory is tight a device is idle for as long as some transfers to a neighbour and back take. Several
micro-batches can share that: in a loop of four chunks per device at 3/4 of interleaved 1F1B's memory, five
micro-batches that of four round trips. No solver finds in minutes what this finds in seconds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from placements import Placement
from schedsearch.modulo.device_by_device.device_orders import DeviceOrders, repetend_of
from schedsearch.modulo.device_by_device.line_of_devices import LineOfDevices
from schedsearch.modulo.device_by_device.next_device import (
    DeviceBlocks,
    Floats,
    Hashes,
    Ints,
    Prices,
    next_orders,
)
from schedsearch.modulo.device_by_device.ring_closing import NOT_POSSIBLE, Flows, price_closing
from schedsearch.repetend import Repetend
from schedsearch.solver.cores import together, usable_cores
from schedsearch.solver.effort import Effort

Result = TypeVar("Result")

_MAX_BLOCKS = 40
"""Most blocks of a device in a period; more of them have too many orders."""

_MAX_GAPS = 3
"""Units of idle time per micro-batch; with more, patterns of a few devices do as well."""

_MAX_WEIGHT = 16
"""Greatest weight of a block, in units that divide all weights."""

_ORDERS = 800
"""That are carried on from a device to the next, the first time that something is asked."""

_FIRSTS = 400
"""Orders of the first device, likewise."""

_DOUBLED = 2
"""How often both are doubled, each time that the same was asked twice."""

_ATTEMPTS = 8
"""How often the same is asked."""

_WORK_OF_PAIR = 5.5e-7
"""Units of work for each pair of blocks of an order that is carried on from a device to the next."""

_WIDTH = 60
"""Beginnings of an order that are kept."""

_MOST = 40
"""Orders that are built for each anchor."""

_ANCHORS = 2
"""Forwards of an order with which the next may begin."""

_FIRST_BEAM = 6000
"""Orders of one micro-batch from which those of several are made, and of which it costs little to carry on
many."""

_FIRST_DEVICES = 10
"""Devices after which random orders of one micro-batch are as good as they get."""

_USUAL_DEVICES, _UNUSUAL = 7, 4
"""Devices sampled to estimate how long messages usually wait; the second number of them are burn-in."""

_GUIDED = 0.625
"""Share of a ring's devices, its last ones, for which it counts which messages come in time."""

_OF_EACH = 2
"""Orders that are carried on, before that, of those that began with the same."""

_MORE = 0.35
"""Units that a device may hold more than its share of the capacity."""

_LAST, _MORE_ON_LAST = 5, 0.95
"""The last devices, for which it is more, as some messages must not wait there."""

_PRICE = 60.0
"""Price of a unit held, where a message that is late by its usual spread costs 1 or so."""

_SPREAD = 0.1
"""Spread of how long messages wait on a device, as a share of the load."""

_ENOUGH = 2
"""How often the longest period of one micro-batch, and then of two, that is not found is asked for before
there may be more."""

_FINENESS = 0.002
"""Share of the bound below which a shorter period is no longer sought."""


class DeviceBeams:
    """Searches of several periods and numbers of micro-batches, which can be gone on with.

    A shorter period needs more memory, so that the longest one below what is known is the likeliest. It gets
    four times the work of the next, and so on. Where one is found at once, ever more are skipped until one
    is not. Those of one micro-batch come first, then those of two, for which it is little work.
    """

    def __init__(self, placement: Placement, sizes: Sequence[int], seed: int = 0) -> None:
        """Begin with nothing known.

        Args:
            placement: What runs where, without optimizer blocks.
            sizes: Micro-batches per repetend that are allowed.
            seed: Seed of the random orders.
        """
        self._sizes = sizes
        self._beams: list[DeviceBeam] = []
        line = LineOfDevices(placement)
        ring = Ring.of(line) if line.applies else None
        if ring is not None:
            first = {gaps: DeviceBeam(ring, 1, gaps, seed) for gaps in range(_MAX_GAPS + 1)}
            self._beams = [
                DeviceBeam(ring, size, gaps, seed, first[-(-gaps // size)])
                for size in sizes
                if size * len(ring.blocks.time) <= _MAX_BLOCKS
                for gaps in range(_MAX_GAPS * size, -1, -1)
                if math.gcd(size, gaps) == 1
            ]
            self._beams.sort(key=lambda beam: -beam.rate)

    def shorter(
        self, bound: Fraction, known: Fraction | float, effort: Effort, until: float = math.inf
    ) -> Iterator[Repetend]:
        """Yield repetends of ever shorter periods that keep all capacities.

        Args:
            bound: Ticks per micro-batch that no repetend beats.
            known: Ticks per micro-batch to beat.
            effort: Told what is done.
            until: Work after which to stop. One that will take more than twice what there is does not begin.

        Raises:
            OutOfTimeError: The time limit is over.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        max_work = 2 * (until - effort.spent)
        for most in sorted({*self._sizes[:2], self._sizes[-1]}):
            skipped = 0
            while True:
                open_ = [
                    beam
                    for beam in self._beams
                    if beam.size <= most
                    and bound <= beam.rate < known - float(bound) * _FINENESS
                    and not beam.holds_too_much
                    and beam.asked < _ATTEMPTS
                ]
                if not open_ or (most != self._sizes[-1] and open_[0].asked >= _ENOUGH):
                    break
                likeliest = min(range(len(open_)), key=lambda i: open_[i].effort * 4**i)
                beam = open_[min(skipped, len(open_) - 1) if skipped else likeliest]
                if effort.spent >= until or beam.work > max_work:
                    return
                found = beam.ask(effort)
                skipped = 2 * skipped + 1 if found is not None else 0
                if found is not None:
                    known = Fraction(found.period, found.micro_batches)
                    yield found


@dataclass(frozen=True)
class Ring:
    """A ring, or a line, of devices that all run the same.

    Attributes:
        line: The devices.
        blocks: What each runs; the longest times where they differ, and weights in units.
        flows: What comes back to the first device.
        capacity: What the first device may hold, in units.
        memory: Units that each role allocates there; less than 0 for what it releases.
    """

    line: LineOfDevices
    blocks: DeviceBlocks
    flows: Flows
    capacity: float
    memory: Ints

    @classmethod
    def of(cls, line: LineOfDevices) -> Ring | None:
        """Return a line as a ring; None where its devices do not run the same, or the first holds less."""
        roles = line.time.shape[1]
        by_role = [sorted(steps, key=lambda step: step.source) for steps in line.hops]
        alike = [[(s.source, s.target, s.forward, s.weight) for s in steps] for steps in by_role]
        first = by_role[0]
        if (
            line.fullest != 0
            or any(one != alike[0] for one in alike)
            or [(step.source, step.target) for step in first] != [(role, role) for role in range(roles)]
            or any(line.inside[:-1])
        ):
            return None
        unit = math.gcd(*(step.weight for step in first))
        free = line.placement.free_memory
        assert free is not None
        blocks = DeviceBlocks(
            forward=np.array([step.forward for step in first]),
            ticks=np.max([[step.ticks for step in steps] for steps in by_role], axis=0).astype(np.int64),
            time=line.time.max(axis=0),
            weight=np.array([step.weight // unit for step in first], dtype=np.int64),
        )
        back = [*line.closing, *line.inside[-1]]
        if blocks.weight.max() > _MAX_WEIGHT or blocks.weight.min() < 1 or not back:
            return None
        flows = _flows(line, blocks)
        if any(
            step.weight != unit * weight
            for step, weight in zip(back, blocks.weight[flows.roles()], strict=True)
        ):
            return None
        memory = np.array([block.memory_on(0) for block in line.on[0]])
        if (memory % unit).any():
            return None
        return cls(line, blocks, flows, free[0] // unit, memory // unit)

    @property
    def load(self) -> int:
        """Ticks that a device is busy for one micro-batch."""
        return int(self.blocks.time.sum())

    @property
    def gap(self) -> int:
        """Ticks of a unit of idle time: of a transfer and one back, or what divides all times."""
        return self.line.round_trip or int(np.gcd.reduce(self.blocks.time))

    @property
    def devices(self) -> int:
        """How many there are."""
        return len(self.line.on)

    def above_average(self, starts: Ints, period: int) -> Floats:
        """Return how many units the first device holds at its peak above its average, for each order."""
        size = starts.shape[-1]
        ticks = (starts % period).reshape(len(starts), -1)
        order = np.argsort(ticks, axis=1)
        ticks = np.take_along_axis(ticks, order, axis=1)
        level = np.cumsum(self.memory[order // size], axis=1)
        lasts = np.diff(ticks, axis=1, append=ticks[:, :1] + period)
        peak: Floats = level.max(axis=1) - (level * lasts).sum(axis=1) / period
        return peak


def _flows(line: LineOfDevices, blocks: DeviceBlocks) -> Flows:
    """Return what comes from the last device to the first, from the first to the last, and turns there."""
    rows = []
    for step in line.closing:
        role = step.source if step.forward else step.target
        rows.append(
            (not step.forward, step.source, step.forward, step.target, step.ticks, blocks.ticks[role])
        )
    for step in line.inside[-1]:
        both = blocks.ticks[step.source] + blocks.ticks[step.target]
        rows.append((False, step.source, False, step.target, step.ticks, both))
    columns = list(zip(*rows, strict=True))
    kinds = (np.bool_, np.int64, np.bool_, np.int64, np.int64, np.int64)
    return Flows(*(np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)))


@dataclass(frozen=True)
class _Beam:
    """Orders of one device that are carried on.

    Attributes:
        starts: Ticks in one period; shape ``(orders, roles, micro-batches)``.
        held: What the first device holds on average up to here, in units.
        begun: With which order of the first device each began.
        before: Which order of the device before each continues.
        hashed: The same for the same order.
        waited: Which forwards waited for this device; as anchors are numbered. Most that did do not wait for
            the next.
    """

    starts: Ints
    held: Floats
    begun: Ints
    before: Ints
    hashed: Hashes
    waited: NDArray[np.bool_]

    def take(self, rows: NDArray[np.int_]) -> _Beam:
        """Return some of them."""
        return _Beam(
            self.starts[rows],
            self.held[rows],
            self.begun[rows],
            self.before[rows],
            self.hashed[rows],
            self.waited[rows],
        )


class DeviceBeam:
    """The search for a ring of one number of micro-batches per repetend and one period.

    Attributes:
        ring: The devices.
        size: Micro-batches per repetend.
        gaps: Units of idle time.
        period: Ticks.
        asked: How often it was.
        effort: Work on it until now and in the next time.
        holds_too_much: Whether from device to device orders hold more than fits.
    """

    def __init__(self, ring: Ring, size: int, gaps: int, seed: int, first: DeviceBeam | None = None) -> None:
        """Begin with nothing known.

        Args:
            ring: See `DeviceBeam`.
            size: Likewise.
            gaps: Likewise.
            seed: Seed of the random orders.
            first: Of whose orders of one micro-batch, with more idle time, those of several are made; itself
                if none is given.
        """
        self.ring = ring
        self.size = size
        self.gaps = gaps
        self.period = size * ring.load + gaps * ring.gap
        self.asked = 0
        self.effort = size**2
        self.holds_too_much = False
        self._first = first or self
        self._rng = np.random.default_rng(seed)
        self._share = ring.capacity / ring.devices
        self._anchors = np.flatnonzero(np.repeat(ring.blocks.forward, size))
        self._orders: DeviceOrders | None = None
        self._carried = np.empty((0, len(ring.blocks.time), size), dtype=np.int64)

    @property
    def rate(self) -> Fraction:
        """Ticks per micro-batch."""
        return Fraction(self.period, self.size)

    @property
    def _more(self) -> int:
        """How many times the orders are carried on that are the first time."""
        return int(2 ** min(self.asked // 2, _DOUBLED))

    @property
    def work(self) -> float:
        """About how much the next time takes, in units of work."""
        return self.ring.devices * _ORDERS * self._more * self._work_of_order

    @property
    def _work_of_order(self) -> float:
        return float((len(self.ring.blocks.time) * self.size) ** 2 * _WORK_OF_PAIR)

    def ask(self, effort: Effort) -> Repetend | None:
        """Return a repetend, if this time one is found; the more often it is asked, the more it does.

        Args:
            effort: Told what is done.

        Raises:
            OutOfTimeError: The time limit is over.
        """
        first = self._first.orders(effort, anew=self.asked > 0)  # with some the ring never closes
        usual = self.usual_waits(first, effort)
        if usual is None:
            self.holds_too_much = True
            return None
        begun = self._starts_of(self._repeated(first))
        if self.asked % 2:
            begun = np.concatenate([begun, self._carried])
        found = self.close(begun, usual, self._more, effort)
        self.asked += 1
        self.effort += self.size**2 * self._more
        return found

    def orders(self, effort: Effort, *, anew: bool = False) -> DeviceOrders:
        """Return orders that hold little from device to device, from random ones.

        Raises:
            OutOfTimeError: The time limit is over.
        """
        if self._orders is not None and not anew:
            return self._orders
        roles = len(self.ring.blocks.time)
        random = DeviceOrders.random(self._rng, roles, self.size, self.gaps, _FIRST_BEAM)
        beams = self._carried_on(random, _FIRST_DEVICES, _FIRST_BEAM, 2 * _MORE, effort)
        good = [self._orders_of(beam.starts) for beam in beams[-3:]]
        every = good[0]
        for orders in good[1:]:
            every = every.and_also(orders)
        every = every.without_repeats()
        self._orders = every.take(np.flatnonzero(every.gaps.sum(axis=1) == self.gaps))
        return self._orders

    def usual_waits(self, first: DeviceOrders, effort: Effort) -> Floats | None:
        """Return how many ticks each role's blocks wait from device to device; None if that holds too much.

        Args:
            first: Orders of one micro-batch with more idle time, with which to begin.
            effort: Told what is done.

        Raises:
            OutOfTimeError: The time limit is over.
        """
        orders = self._repeated(first)
        rows = self._rng.permutation(len(orders))[:_ORDERS]
        beams = self._carried_on(orders.take(rows), _USUAL_DEVICES, _ORDERS, _MORE, effort)
        if len(beams) <= _USUAL_DEVICES:
            return None
        if beams[-1].held[0] / _USUAL_DEVICES * self.ring.devices > self.ring.capacity:
            return None
        self._carried = np.concatenate([beam.starts for beam in beams[2:]])
        blocks = self.ring.blocks
        waits = []
        for before, after in itertools.pairwise(beams[_UNUSUAL:]):
            starts = after.starts[:50]
            gone = starts - before.starts[after.before[:50]]
            gone = np.where(blocks.forward[None, :, None], gone, -gone) - blocks.ticks[None, :, None]
            waits.append(gone.mean(axis=(0, 2)))
        each: Floats = np.mean(waits, axis=0)
        flows = self.ring.flows
        usual = each.copy()
        for source, target, from_first, to_first in zip(
            flows.source, flows.target, flows.from_first, flows.to_first, strict=True
        ):
            if not from_first and not to_first:
                usual[source] = usual[target] = each[source] + each[target]
        return usual

    def close(self, every: Ints, usual: Floats, more: int, effort: Effort) -> Repetend | None:
        """Return a repetend of a whole ring, if one is found.

        Args:
            every: Starts of orders of the first device; shape ``(orders, roles, micro-batches)``.
            usual: See `usual_waits`.
            more: How many times the orders are carried on that are the first time.
            effort: Told what is done.

        Raises:
            OutOfTimeError: The time limit is over.
        """
        peaks = self.ring.above_average(every, self.period)
        to_come = self.ring.devices - 1
        price, _ = self._closing(_begin(every, len(self._anchors)), every, peaks, to_come, usual)
        rows = np.argsort(price, kind="stable")[: _FIRSTS * more]
        rows = rows[price[rows] < NOT_POSSIBLE]
        firsts, peaks = every[rows], peaks[rows]
        beams = [_begin(firsts, len(self._anchors))]
        guided, orders = self.ring.devices * _GUIDED, _ORDERS * more
        for devices in range(to_come - 1, -1, -1):  # still to come after this
            prices = self._prices(usual, devices)
            most = _MORE_ON_LAST if devices < _LAST else _MORE
            if devices >= guided:
                found = self._next(beams[-1], None, prices, most, effort)
                beams.append(_best(found, found.held, orders, _OF_EACH))
                continue
            _, slack = self._closing(beams[-1], firsts, peaks, devices + 1, usual)
            found = self._next(beams[-1], slack, prices, most, effort)
            price, _ = self._closing(found, firsts, peaks, devices, usual)
            beams.append(_best(found, price + found.held * _PRICE, orders, orders))
        price, _ = self._closing(beams[-1], firsts, peaks, 0, usual)
        for last in np.argsort(price, kind="stable"):
            if price[last] >= NOT_POSSIBLE:
                break
            repetend = self._repetend(beams, int(last))
            if repetend is not None:
                return repetend
        return None

    def _repeated(self, first: DeviceOrders) -> DeviceOrders:
        """Return orders of one micro-batch repeated, without some of the round trips."""
        return first.repeated(self.size).with_gaps(self._rng, self.gaps)

    def _starts_of(self, orders: DeviceOrders) -> Ints:
        return orders.starts(self.ring.blocks.time, self.ring.gap)

    def _orders_of(self, starts: Ints) -> DeviceOrders:
        """Return in which order blocks start, from any moment on."""
        ticks = (starts % self.period).reshape(len(starts), -1)
        order = np.argsort(ticks, axis=1)
        ticks = np.take_along_axis(ticks, order, axis=1)
        roles = order // self.size
        idle = np.diff(ticks, axis=1, append=ticks[:, :1] + self.period) - self.ring.blocks.time[roles]
        return DeviceOrders(roles.astype(np.int8), (idle // self.ring.gap).astype(np.int8))

    def _carried_on(
        self, orders: DeviceOrders, devices: int, most: int, more: float, effort: Effort
    ) -> list[_Beam]:
        """Carry orders on for some devices, whatever becomes of their messages."""
        beams = [_begin(self._starts_of(orders), len(self._anchors))]
        beams[0].begun[:] = 0  # the same order is the same, wherever it came from
        usual = np.zeros(len(self.ring.blocks.time))
        prices = Prices(1 / self.period, usual, 1.0)
        for _ in range(devices):
            slack = np.full(beams[-1].starts.shape, np.inf)
            found = self._next(beams[-1], slack, prices, more, effort)
            if not len(found.starts):
                break
            beams.append(_best(found, found.held, most, most))
        return beams

    def _next(self, beam: _Beam, slack: Floats | None, prices: Prices, more: float, effort: Effort) -> _Beam:
        """Build the orders of the next device; without a slack whatever becomes of its messages."""
        effort.require_s()
        effort.spend(len(beam.starts) * self._work_of_order)
        blocks, starts = self.ring.blocks, beam.starts
        if slack is None:
            slack = np.full(starts.shape, np.inf)
        least = self.size * int(blocks.weight @ blocks.ticks)
        max_waits = int((self._share + more) * self.period) - least
        likely = np.argsort(self._rng.random(beam.waited.shape) - beam.waited, axis=1, kind="stable")
        anchor = self._anchors[likely[:, :_ANCHORS]]

        def part(rows: slice) -> tuple[Ints, Ints, Hashes]:
            most = len(starts[rows]) * anchor.shape[1] * _MOST
            found = np.empty((most, *starts.shape[1:]), dtype=np.int64)
            before, hashed = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.uint64)
            count = next_orders(
                starts[rows],
                np.ascontiguousarray(anchor[rows]),
                blocks,
                self.period,
                self.ring.gap,
                max_waits,
                _WIDTH,
                _MOST,
                slack[rows],
                prices,
                found,
                before,
                hashed,
            )
            return found[:count], before[:count] + rows.start, hashed[:count]

        found, before, hashed = (
            np.concatenate(each) for each in zip(*_in_threads(part, len(starts)), strict=True)
        )
        held = beam.held[before] + self._potential(found) - self._potential(starts)[before]
        waited = found - starts[before] > blocks.ticks[:, None]
        waited = waited[:, blocks.forward].reshape(len(found), len(self._anchors))
        return _Beam(found, held, beam.begun[before], before, hashed, waited)

    def _prices(self, usual: Floats, devices: int) -> Prices:
        """Return what waiting costs where so many devices are to come."""
        spread = _SPREAD * self.ring.load * math.sqrt(devices + 0.3)
        return Prices(_PRICE / self.period, usual * devices, spread)

    def _potential(self, starts: Ints) -> Floats:
        """Return what by its differences tells what the first device holds on average; in units."""
        blocks = self.ring.blocks
        weight = np.where(blocks.forward, blocks.weight, -blocks.weight) / self.period
        potential: Floats = starts.sum(axis=2) @ weight
        return potential

    def _closing(
        self, beam: _Beam, firsts: Ints, peaks: Floats, devices: int, usual: Floats
    ) -> tuple[Floats, Floats]:
        """Return how unlikely orders go on to a whole ring, and what each block may wait until its end."""
        price, slack = np.empty(len(beam.starts)), np.empty(beam.starts.shape)
        prices = self._prices(usual, devices)
        held = beam.held + peaks[beam.begun]

        def part(rows: slice) -> None:
            price_closing(
                beam.starts[rows],
                held[rows],
                beam.begun[rows],
                firsts,
                self.ring.flows,
                devices,
                self.ring.blocks,
                self.period,
                float(self.ring.capacity),
                prices,
                price[rows],
                slack[rows],
            )

        _in_threads(part, len(beam.starts))
        return price, slack

    def _repetend(self, beams: list[_Beam], last: int) -> Repetend | None:
        """Return the repetend of an order of the last device, if it keeps all capacities."""
        starts = []
        for beam in reversed(beams):
            starts.append(np.sort(beam.starts[last] % self.period, axis=1))
            last = int(beam.before[last])
        placement = self.ring.line.placement
        found = repetend_of(self.ring.line, starts[::-1], self.period, self.period)
        assert placement.memory is not None
        if found is None or any(
            held > most for held, most in zip(found.peak_memory, placement.memory, strict=True)
        ):
            return None
        return found


def _begin(starts: Ints, forwards: int) -> _Beam:
    every = np.arange(len(starts))
    waited = np.zeros((len(starts), forwards), dtype=np.bool_)
    return _Beam(starts, np.zeros(len(starts)), every.copy(), every, every.astype(np.uint64), waited)


def _best(beam: _Beam, price: Floats, most: int, of_each: int) -> _Beam:
    """Return the cheapest orders, each once of those that began as one, and so many of those."""
    key = beam.hashed ^ (beam.begun.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    rows = np.lexsort((price, key))
    rows = rows[np.diff(key[rows], prepend=~key[rows[:1]]) != 0]
    rows = rows[np.lexsort((price[rows], beam.begun[rows]))]
    begun = beam.begun[rows]
    rows = rows[np.arange(len(rows)) - np.searchsorted(begun, begun) < of_each]
    return beam.take(rows[np.argsort(price[rows], kind="stable")][:most])


def _in_threads(part: Callable[[slice], Result], count: int) -> list[Result]:
    """Return what is found for each of some parts of so many rows; the parts do not change the whole."""
    cores = usable_cores()
    ends = [count * i // cores for i in range(cores + 1)]
    return together([partial(part, slice(a, b)) for a, b in itertools.pairwise(ends)])
