"""Repetends of a line of devices that hold little: a path through the orders of one device after the other.

What the fullest device holds is a sum over neighbours: of how many rounds later the second runs what it gets
from the first, and the first what it gets back. Shortest paths over a pool of orders make that sum least. The
pool then keeps what lies on short paths, and gets changed orders.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schedsearch.modulo.many_blocks.device_orders import (
    DeviceOrders,
    Ints,
    Weights,
    least_weights,
    most_held,
    shifts,
    whole_rounds,
)
from schedsearch.modulo.many_blocks.line_of_devices import LineOfDevices
from schedsearch.repetend import Repetend
from schedsearch.solver.interrupts import INTERRUPTS

_KEPT = 100
"""Orders that a pool keeps from round to round."""

_NEW = 300
"""Orders that it gets in a round."""

_FIRST = 12
"""Orders of the first device, from which paths begin and to which those of a ring come back."""

_ON_PATHS = 150
"""Orders from which paths are made whole."""

_LABELS = 4000
"""Beginnings of paths that are carried on from a device to the next."""

_WHOLE = 20
"""Whole paths that are tried."""

_NEVER = 1 << 29


class _Paths(NamedTuple):
    """What shortest paths weigh.

    Attributes:
        first: The orders of the first device; shape ``(firsts,)``.
        upto: For each device what paths from each first order to each order weigh; ``(firsts, orders)``.
        beyond: Likewise from each order to the end.
    """

    first: NDArray[np.int_]
    upto: list[Weights]
    beyond: list[Weights]

    @property
    def least(self) -> Weights:
        """What the lightest path over each order weighs; shape ``(orders,)``."""
        over = [(a + b).min(axis=0) for a, b in zip(self.upto, self.beyond, strict=True)]
        return np.asarray(np.min(over, axis=0))

    @property
    def least_from(self) -> Weights:
        """What the lightest path from each first order weighs; shape ``(firsts,)``."""
        return np.asarray((self.upto[-1] + self.beyond[-1]).min(axis=1))


class OrderPaths:
    """The search for orders of one number of micro-batches per repetend, and one period.

    Attributes:
        line: The devices.
        micro_batches: Per repetend.
        gaps: Round trips of idle time per repetend.
        period: Ticks.
    """

    def __init__(self, line: LineOfDevices, micro_batches: int, gaps: int, seed: int) -> None:
        """Begin with no orders."""
        self.line = line
        self.micro_batches = micro_batches
        self.gaps = gaps
        self.period = micro_batches * line.load + gaps * line.round_trip
        self.orders: DeviceOrders | None = None
        self._rng = np.random.default_rng(seed)
        self._weight: dict[int, Weights] = {}
        self._likely: NDArray[np.float64] | None = None
        self._good: NDArray[np.int_] = np.zeros(0, dtype=np.int_)

    @cached_property
    def _kind(self) -> list[int]:
        """For each hop which of those with other times or steps it is like: the first such hop."""
        line = self.line
        seen: dict[tuple[object, ...], int] = {}
        kinds = []
        for hop, steps in enumerate(line.hops):
            key = line.time[hop].tobytes(), line.time[hop + 1].tobytes(), tuple(steps)
            kinds.append(seen.setdefault(key, hop))
        return kinds

    def begin_with(self, other: OrderPaths) -> None:
        """Take the orders of fewer micro-batches, repeated, with more or less idle time."""
        times, rest = divmod(self.micro_batches, other.micro_batches)
        if rest or other.orders is None:
            return
        rows = self._rng.choice(len(other.orders), size=_NEW, p=other._likely)
        self._add(other.orders.take(rows).repeated(times).with_gaps(self._rng, self.gaps))
        self._prune()

    def improve(self) -> int:
        """Add orders to the pool and keep those on the lightest paths; return what the lightest weighs."""
        roles = self.line.time.shape[1]
        if self.orders is None:
            new = DeviceOrders.random(self._rng, roles, self.micro_batches, self.gaps, 2 * _NEW)
        else:
            parents = self._rng.choice(len(self.orders), size=_NEW, p=self._likely)
            new = self.orders.take(parents).changed(self._rng)
        self._add(new)
        return self._prune()

    def repetends(self, longest: int, deadline: float) -> Iterator[Repetend]:
        """Yield repetends that keep all capacities, of the lightest paths of the pool.

        Args:
            longest: Ticks that their periods may have.
            deadline: When to try no more paths, in seconds of `time.monotonic`.

        Raises:
            KeyboardInterrupt: There was a Ctrl-C.
        """
        capacity, free = self.line.placement.memory, self.line.placement.free_memory
        assert capacity is not None and free is not None
        paths = self._paths(_FIRST)
        value = paths.least
        limit = free[self.line.fullest]
        rows = np.argsort(value, kind="stable")[:_ON_PATHS]
        if value.min() > limit:
            return
        limit = min(limit, int(value.min()) + sum(step.weight for step in self.line.closing))
        few = copy(self)
        few._keep(np.union1d(rows[value[rows] <= limit], paths.first[paths.least_from <= limit]))
        for path, at, fits in few._whole_paths(limit, deadline):
            found = few._repetend(path, at, fits, longest)
            if found is not None and all(
                held <= most for held, most in zip(found.peak_memory, capacity, strict=True)
            ):
                yield found

    def _starts(self, device: int, rows: NDArray[np.int_] | None = None) -> Ints:
        assert self.orders is not None
        orders = self.orders if rows is None else self.orders.take(rows)
        return orders.starts(self.line.time[device], self.line.round_trip)

    def _add(self, new: DeviceOrders) -> None:
        """Take orders into the pool, and weigh them against all others."""
        old = self.orders
        new = new.without_repeats()
        if old is not None:
            new = new.without(old)
        self.orders = new if old is None else old.and_also(new)
        size = 0 if old is None else len(old)
        for hop in set(self._kind):
            before, after = self._starts(hop), self._starts(hop + 1)
            weight = np.zeros((len(before), len(after)), dtype=np.int32)
            if size:
                weight[:size, :size] = self._weight[hop]
            steps, period = self.line.hops[hop], self.period
            weight[size:] = least_weights(before[size:], after, steps, period)
            weight[:size, size:] = least_weights(before[:size], after[size:], steps, period)
            self._weight[hop] = weight

    def _keep(self, rows: NDArray[np.int_]) -> None:
        """Keep some orders, in ascending rows."""
        assert self.orders is not None
        self.orders = self.orders.take(rows)
        self._weight = {hop: weight[np.ix_(rows, rows)] for hop, weight in self._weight.items()}
        self._good = np.flatnonzero(np.isin(rows, self._good))

    def _prune(self) -> int:
        """Keep the orders on the lightest paths; return what the lightest weighs."""
        paths = self._paths(_FIRST)
        value = paths.least
        best = np.argsort(paths.least_from, kind="stable")[: _FIRST // 2]
        self._good = paths.first[best]
        rows = np.argsort(value + self._rng.random(len(value)) * 0.9)[:_KEPT]
        rows = np.union1d(rows, self._good)
        self._keep(rows)
        likely = np.exp(value.min() - value[rows].astype(np.float64))
        self._likely = likely / likely.sum()
        return int(value.min())

    def _nodes(self) -> list[Weights]:
        """Return for each device what each order weighs by itself; shape ``(orders,)``."""
        nodes: list[Weights] = []
        for device, steps in enumerate(self.line.inside):
            starts = self._starts(device)
            node: Ints = np.zeros(len(starts), dtype=np.int64)
            for step in steps:
                if step.weight:
                    source, target = starts[:, step.source], starts[:, step.target]
                    node += step.weight * whole_rounds(source, target, step.ticks, self.period)
            if device == self.line.fullest:
                node += most_held(starts, [block.memory_on(device) for block in self.line.on[device]])
            nodes.append(node.astype(np.int32))
        return nodes

    def _firsts(self, nodes: list[Weights], count: int) -> NDArray[np.int_]:
        """Return the best orders of the first device, those that were good before among them."""
        beyond = nodes[-1]
        for hop in range(len(self._kind) - 1, -1, -1):
            beyond = (self._weight[self._kind[hop]] + beyond[None, :]).min(axis=1) + nodes[hop]
        rest = np.argsort(beyond + self._rng.random(len(beyond)) * 1.5)
        return np.concatenate([self._good, rest[~np.isin(rest, self._good)]])[:count]

    def _paths(self, count: int) -> _Paths:
        """Weigh the lightest paths from `count` orders of the first device."""
        nodes = self._nodes()
        first = self._firsts(nodes, count)
        every = np.arange(len(first))
        begin = np.full((len(first), len(nodes[0])), _NEVER, dtype=np.int32)
        begin[every, first] = nodes[0][first]
        upto, beyond = [begin], [self._closing(first)]
        for hop, kind in enumerate(self._kind):
            weight = self._weight[kind]
            if hop == 0:
                on = nodes[0][first][:, None] + weight[first]
            else:
                on = np.stack([(row[:, None] + weight).min(axis=0) for row in upto[-1]])
            upto.append(on + nodes[hop + 1])
        for hop in range(len(self._kind) - 1, -1, -1):
            weight = self._weight[self._kind[hop]]
            rest = [(weight + (row + nodes[hop + 1])[None, :]).min(axis=1) for row in beyond[-1]]
            beyond.append(np.stack(rest))
        return _Paths(first, upto, beyond[::-1])

    def _closing(self, first: NDArray[np.int_]) -> Weights:
        """Return the least that a ring weighs from the last device to the first; ``(firsts, orders)``."""
        last, begin = self._starts(len(self.line.on) - 1), self._starts(0, first)
        return least_weights(last, begin, self.line.closing, self.period).T

    def _whole_paths(self, limit: int, deadline: float) -> Iterator[tuple[list[int], list[int], bool]]:
        """Yield paths within a limit, the lightest first: each device's order, and its shift in ticks.

        The last is whether the path keeps the limit where the shifts of a ring's ends are as they are, too.
        """
        line, period = self.line, self.period
        nodes, paths = self._nodes(), self._paths(min(_FIRST, max(1, len(self._good))))
        between = {}
        for hop in set(self._kind):
            steps = [step for step in line.hops[hop] if step.weight]
            between[hop] = shifts(self._starts(hop), self._starts(hop + 1), steps, period)
        begun = np.arange(len(paths.first))
        order, weigh, shift = paths.first, nodes[0][paths.first], np.zeros(len(begun), dtype=np.int64)
        history = [(order, shift, begun)]
        for hop, kind in enumerate(self._kind):
            if _is_over(deadline):
                return
            by, weighs = between[kind]
            rest = nodes[hop + 1] + paths.beyond[hop + 1][begun]
            total = weigh[:, None, None] + weighs[order] + rest[:, :, None]
            label, to, which = np.nonzero(total <= limit)
            value = total[label, to, which]
            moved = (shift[label] + by[order[label], to, which]) % period
            ascending = np.argsort(value, kind="stable")
            same = ((begun[label] * len(nodes[0]) + to) * period + moved)[ascending]
            chosen = ascending[np.unique(same, return_index=True)[1]]
            if len(chosen) > _LABELS:
                by_value = np.argsort(value[chosen] + self._rng.random(len(chosen)) * 1.5)
                chosen = chosen[by_value[:_LABELS]]
            label, order, shift = label[chosen], to[chosen], moved[chosen]
            begun = begun[label]
            weigh = value[chosen] - paths.beyond[hop + 1][begun, order]
            history.append((order, shift, label))
            if not len(order):
                return
        weigh = weigh + self._closed(order, shift, paths.first[begun])
        for label_ in np.argsort(weigh, kind="stable")[:_WHOLE]:
            if _is_over(deadline):
                return
            i, rows, at = int(label_), [], []
            for order, shift, back in reversed(history):
                rows.append(int(order[i]))
                at.append(int(shift[i]))
                i = int(back[i])
            yield rows[::-1], at[::-1], bool(weigh[label_] <= limit)

    def _closed(self, last: NDArray[np.int_], shift: Ints, first: NDArray[np.int_]) -> Ints:
        """Return what a ring weighs from the last device, so much shifted, to the first; ``(paths,)``."""
        weighs: Ints = np.zeros(len(last), dtype=np.int64)
        one, other = self._starts(len(self.line.on) - 1, last), self._starts(0, first)
        for step in self.line.closing:
            if step.forward:
                source, target, ticks = one[:, step.source], other[:, step.target], step.ticks + shift
            else:
                source, target, ticks = other[:, step.source], one[:, step.target], step.ticks - shift
            weighs += step.weight * whole_rounds(source, target, ticks, self.period)
        return weighs

    def _repetend(self, rows: list[int], at: list[int], fits: bool, longest: int) -> Repetend | None:
        """Return the repetend of least period of each device's order, where blocks run as soon as they can.

        How soon follows from each device's shift; across the ends of a ring, where these do not fit, from
        the lightest shift there, which needs a longer period if there is one at all.
        """
        starts = [self._starts(device, np.array([row]))[0] for device, row in enumerate(rows)]
        ring = at[-1] if fits else self._lightest_closing(starts[-1], starts[0])
        return repetend_of(self.line, starts, self.period, longest, at, ring)

    def _lightest_closing(self, last: Ints, first: Ints) -> int:
        """Return by how many ticks less a ring's first device is shifted than its last, at best."""
        steps = [step for step in self.line.closing if step.weight]
        if not steps:
            return 0
        by, weighs = shifts(last[None], first[None], steps, self.period)
        return -int(by[0, 0, weighs[0, 0].argmin()])


def repetend_of(
    line: LineOfDevices, starts: Sequence[Ints], period: int, longest: int, at: Sequence[int], ring: int
) -> Repetend | None:
    """Return the repetend of least period of each device's order, where blocks run as soon as they can.

    Args:
        line: The devices.
        starts: For each device the starts in one period, ascending; shape ``(roles, micro-batches)``.
        period: Ticks, with which it is told how many rounds later a block runs than the one it waits for.
        longest: Ticks that the period of the repetend may have.
        at: Of each device, by how many ticks it is shifted.
        ring: Of a ring's last device, against the first.
    """
    size = starts[0].shape[1]
    place: dict[str, int] = {}
    where = {block.name: (d, role) for d, on in enumerate(line.on) for role, block in enumerate(on)}
    for block in line.placement.topological_order:
        place[block.name] = 0
        for name in block.after:
            (one, source), (other, target) = where[name], where[block.name]
            ticks = line.placement.by_name[name].time + line.placement.transfer_time(name, block.name)
            ticks += at[one] - at[other] if abs(one - other) < 2 else ring if one else -ring
            later = whole_rounds(starts[one][source], starts[other][target], ticks, period)
            place[block.name] = place[name] + int(later)
    cycles = []
    for on, begun in zip(line.on, starts, strict=True):
        cycle = sorted(
            (int(begun[i][n]), b.name, n - place[b.name]) for i, b in enumerate(on) for n in range(size)
        )
        cycles.append([((name, n % size), n // size) for _, name, n in cycle])
    return Repetend.of_least_period(line.placement, size, cycles, size * line.load, longest)


def _is_over(deadline: float) -> bool:
    INTERRUPTS.raise_if_seen()
    return time.monotonic() >= deadline
