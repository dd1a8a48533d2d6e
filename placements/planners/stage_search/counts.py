"""The search over runs of equal layers: how many of them take each option, not which.

It leaves out what the order of a run's layers decides: recomputation above what is kept, so that it finds
what no choice can be cheaper than, and a choice that may be it. The module does not know whether that fits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements.planners.stage_search.labels import frontier
from placements.planners.stage_search.stage_problem import ROUNDING
from placements.planners.stage_search.tables import Floats, Ints, Stage, Table, following, priced

_MOST_LAYOUTS = 5
_MOST_COUNTS = 150_000
"""Of one run; ten times as many of it with the runs after it."""

_GAPS = 3e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2
"""Above the bound, of the cost: within which choices are listed, one after the other until there is one."""


_ENORMOUS = 1e300
"""Cost where there is no option."""


class TooManyError(Exception):
    """There are too many choices to list."""


class _Walks(NamedTuple):
    """The cheapest ways through all of some layouts, by which layouts, the first and the last.

    Attributes:
        members: Which layouts; shape ``(num_sets, num_layouts)``.
        cost: Shape ``(num_sets, num_layouts, num_layouts)``; infinite where an end is not a member.
        way: By set, first and last: the layouts in order.
    """

    members: NDArray[np.bool_]
    cost: Floats
    way: dict[tuple[int, int, int], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class _Counted:
    """Ways to give a run's layers options, all of one set of layouts.

    Attributes:
        which: The set, in `_Walks`.
        options: Of the run's table, those that are counted.
        counts: Shape ``(num_ways, num_options)``.
        cost: Of each way, without transitions.
        weight: In MiB.
    """

    which: int
    options: Ints
    counts: Ints
    cost: Floats
    weight: Floats


class _Chained(NamedTuple):
    """Choices for a run and all runs after it; arrays of one length.

    Attributes:
        cost: With transitions.
        weight: In MiB.
        layout: Of the first layer.
        counted: Index of the run's `_Counted`.
        way: Index in that.
        parent: Index among the choices of the runs after.
    """

    cost: Floats
    weight: Floats
    layout: Ints
    counted: Ints
    way: Ints
    parent: Ints

    def only(self, which: Ints) -> _Chained:
        """Return some of them."""
        return _Chained(
            self.cost[which],
            self.weight[which],
            self.layout[which],
            self.counted[which],
            self.way[which],
            self.parent[which],
        )


def cheapest_counts(
    stage: Stage, room_mib: float, floor_mib: float, prices: Floats, least_cost: float, cutoff: float
) -> tuple[tuple[int, ...] | None, float]:
    """Return a choice that may be best, and what no choice costs less than.

    Args:
        stage: The problem.
        room_mib: What weights may add up to.
        floor_mib: Room left above them already.
        prices: Of a MiB, ascending; the bounds' best one in the middle.
        least_cost: The bound at that price.
        cutoff: Only choices cheaper than this are looked for.

    Returns:
        Of each layer in order the index of its option, and its cost by the counts; None and the cutoff where
        nothing is cheaper.

    Raises:
        TooManyError: There are too many layouts or choices to list, or the bound is no cost to begin with.
    """
    if len(stage.transition) > _MOST_LAYOUTS or least_cost <= 0:
        raise TooManyError
    walks = _walks(stage.transition.tobytes(), len(stage.transition))
    runs = stage.runs
    ahead = following(runs, stage.transition, prices)
    behind = following(runs[::-1], stage.transition.T, prices)[::-1]
    for gap in _GAPS:
        limit = min(cutoff, least_cost * (1 + gap))
        found = _listed(stage, walks, room_mib, floor_mib, prices, behind, ahead, limit)
        if found is not None and found[1] < limit:
            return found
        if limit == cutoff:
            return None, cutoff
        if found is not None:
            cutoff = min(cutoff, found[1] * (1 + ROUNDING))
    raise TooManyError


def _listed(
    stage: Stage,
    walks: _Walks,
    room_mib: float,
    floor_mib: float,
    prices: Floats,
    behind: Sequence[Floats],
    ahead: Sequence[Floats],
    limit: float,
) -> tuple[tuple[int, ...], float] | None:
    """Return the cheapest choice below a limit by listing all that may be."""
    runs = stage.runs
    least = (float(table.weight_mib.min()) * num_layers for table, num_layers in runs)
    lightest = list(itertools.accumulate(least, initial=0.0))
    none, zero = np.zeros(1), np.zeros(1, dtype=np.int64)
    chained = _Chained(none, none, zero - 1, zero, zero, zero)
    history: list[tuple[list[_Counted], _Chained]] = []
    for i in range(len(runs) - 1, -1, -1):
        table, num_layers = runs[i]
        room = limit + prices[1] * room_mib
        alone_mib = floor_mib if len(runs) == 1 else None
        counted = _counted(table, num_layers, walks, prices[1], behind[i][1], ahead[i][1], room, alone_mib)
        parts = [
            part for index, each in enumerate(counted) for part in _joined(stage, walks, index, each, chained)
        ]
        if not parts:
            return None
        chained = _Chained(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        bound = (
            chained.cost + prices[:, None] * (chained.weight - room_mib) + behind[i][:, chained.layout]
        ).max(axis=0)
        fits = chained.weight + lightest[i] <= room_mib
        alive = np.flatnonzero((bound < limit) & fits)
        if not len(alive):
            return None
        chained = chained.only(alive)
        chained = chained.only(_best(chained))
        history.append((counted, chained))
    best = int(np.argmin(chained.cost))
    return _realised(stage, walks, history, best), float(chained.cost[best])


def _best(chained: _Chained) -> Ints:
    """Return which choices no other one with the same first layout is better than in cost and weight."""
    columns = np.stack([chained.cost, chained.weight], axis=1)
    order = np.lexsort((chained.weight, chained.cost, chained.layout))
    cuts = np.flatnonzero(np.diff(chained.layout[order])) + 1
    parts = [each[frontier(columns[each])] for each in np.split(order, cuts)]
    return np.concatenate(parts)


def _counted(
    table: Table,
    num_layers: int,
    walks: _Walks,
    price: float,
    behind: Floats,
    ahead: Floats,
    room: float,
    alone_mib: float | None,
) -> list[_Counted]:
    """Return the ways to give a run's layers options, by their layouts, whose bound is below the room.

    A run without others weighs more by what it needs above `alone_mib`.
    """
    values = table.cost + price * table.weight_mib
    each = priced(table, len(behind), np.array([price]))[0]
    ends = (behind[:, None] + walks.cost + ahead).min(axis=(1, 2))
    size = walks.members.sum(axis=1)
    base = np.where(walks.members, each, np.inf).min(axis=1, initial=_ENORMOUS)
    others = np.where(walks.members, each, 0.0).sum(axis=1) - size * base
    open_sets = (ends + num_layers * base + others < room) & (size <= num_layers)
    found = []
    for which in np.flatnonzero(open_sets).tolist():
        slack = room - float(ends[which]) - num_layers * float(base[which])
        options = np.flatnonzero(walks.members[which][table.layout])
        more = values[options] - base[which]
        order = np.argsort(more, kind="stable")
        order = order[more[order] < slack]
        options, more = options[order], more[order]
        counts = _counts(more, num_layers, slack)
        if size[which] > 1:
            members = np.flatnonzero(walks.members[which])
            has = [(counts[:, table.layout[options] == layout].sum(axis=1) > 0) for layout in members]
            counts = counts[np.logical_and.reduce(has)]
        both = np.stack([counts @ table.cost[options], counts @ table.weight_mib[options]], axis=1)
        if alone_mib is not None:
            needs = _needs(table, options, counts, alike=bool(size[which] == 1))
            both[:, 1] += np.maximum(needs - alone_mib, 0.0)
        order = np.lexsort(both.T[::-1])
        left = order[frontier(both[order])]
        if len(left):
            found.append(_Counted(which, options, counts[left], both[left, 0], both[left, 1]))
    return found


def _needs(table: Table, options: Ints, counts: Ints, alike: bool) -> Floats:
    """Return the transient memory that counts of a run without others need at least, in any order.

    Recomputed layers alone in one layout are one piece, the last. In all other cases the last recomputed one
    is followed by no more than all that are not, and any one by no more than all others.
    """
    kept, transient = table.kept_mib[options], table.transient_mib[options]
    recomputed, used = table.recomputed[options], counts > 0
    plain = np.where(used & ~recomputed, transient, 0.0).max(axis=1)
    last = np.where(used & recomputed, transient, np.inf).min(axis=1) - counts @ np.where(
        recomputed, 0.0, kept
    )
    others = (counts @ kept)[:, None] - kept
    most = np.where(used & recomputed, transient - others, 0.0).max(axis=1)
    needs = np.maximum(np.maximum(plain, most), np.where(np.isfinite(last), last, 0.0))
    if alike:
        only = ~(used & ~recomputed).any(axis=1)
        needs = np.where(only, np.where(used, transient, 0.0).max(axis=1), needs)
    return np.asarray(needs)


def _counts(more: Floats, num_layers: int, slack: float) -> Ints:
    """Return all counts of options that add up to the layers and cost less than the slack.

    Args:
        more: What each option costs more than the first, ascending.
        num_layers: To be shared among the options.
        slack: What all together may cost more.
    """
    counts = np.zeros((1, len(more)), dtype=np.int64)
    used, spent = np.zeros(1, dtype=np.int64), np.zeros(1)
    for option in range(1, len(more)):
        most = num_layers - used
        if more[option] > 0:
            most = np.minimum(most, ((slack - spent) / more[option]).astype(np.int64))
        if not most.any():
            continue
        repeats = most + 1
        total = int(repeats.sum())
        if total > _MOST_COUNTS:
            raise TooManyError
        parent = np.repeat(np.arange(len(counts)), repeats)
        extra = np.arange(total) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        counts = counts[parent]
        counts[:, option] = extra
        used, spent = used[parent] + extra, spent[parent] + extra * more[option]
    counts[:, 0] = num_layers - used
    return counts


def _joined(stage: Stage, walks: _Walks, index: int, counted: _Counted, after: _Chained) -> list[_Chained]:
    """Return the ways of a run before each choice of the runs after it, by the run's first layout."""
    through = walks.cost[counted.which]
    if after.layout[0] < 0:
        steps = through.min(axis=1)[:, None]
    else:
        steps = (through[:, :, None] + stage.transition[:, after.layout]).min(axis=1)
    if len(counted.cost) * len(after.cost) > 10 * _MOST_COUNTS:
        raise TooManyError
    weight = (counted.weight[:, None] + after.weight).ravel()
    cost = counted.cost[:, None] + after.cost
    way, parent = np.divmod(np.arange(len(weight)), len(after.cost))
    return [
        _Chained(
            (cost + steps[layout]).ravel(),
            weight,
            np.full(len(weight), layout),
            np.full(len(weight), index),
            way,
            parent,
        )
        for layout in np.flatnonzero(walks.members[counted.which]).tolist()
    ]


def _realised(
    stage: Stage, walks: _Walks, history: Sequence[tuple[list[_Counted], _Chained]], best: int
) -> tuple[int, ...]:
    """Return the layers' options in an order that pays the transitions counted and gives back most memory."""
    choice: list[int] = []
    for i, (counted, chained) in enumerate(reversed(history)):
        run = counted[int(chained.counted[best])]
        first, parent = int(chained.layout[best]), int(chained.parent[best])
        ends = walks.cost[run.which][first]
        if i + 1 < len(history):
            later = int(history[-2 - i][1].layout[parent])
            ends = ends + stage.transition[:, later]
        way = walks.way[run.which, first, int(np.argmin(ends))]
        counts = run.counts[int(chained.way[best])]
        choice += _in_order(stage.tables[i], way, run.options, counts)
        best = parent
    return tuple(choice)


def _in_order(table: Table, way: Sequence[int], options: Ints, counts: Ints) -> list[int]:
    """Return the options of a run's layers on the way through its layouts; recomputed ones come first."""
    layers = [
        (not table.recomputed[option], -float(table.transient_mib[option]), int(option))
        for option, count in zip(options.tolist(), counts.tolist(), strict=True)
        for _ in range(count)
    ]
    found = []
    for i, layout in enumerate(way):
        here = sorted(each for each in layers if table.layout[each[2]] == layout)
        here = here[:1] if layout in way[i + 1 :] else here
        for each in here:
            layers.remove(each)
        found += [int(table.index[option]) for *_, option in here]
    return found


@lru_cache(maxsize=64)
def _walks(transition: bytes, num_layouts: int) -> _Walks:
    """Return the cheapest walks through each set of layouts, which may pass through one several times."""
    steps = np.frombuffer(transition).reshape(num_layouts, num_layouts)
    sets = [
        each
        for size in range(1, num_layouts + 1)
        for each in itertools.combinations(range(num_layouts), size)
    ]
    members = np.zeros((len(sets), num_layouts), dtype=np.bool_)
    cost = np.full((len(sets), num_layouts, num_layouts), np.inf)
    way: dict[tuple[int, int, int], tuple[int, ...]] = {}
    for index, each in enumerate(sets):
        members[index, list(each)] = True
        shortest = _shortest(steps, each)
        for order in itertools.permutations(each):
            for last in each:
                stops = order if last == order[-1] else (*order, last)
                legs = [shortest[pair] for pair in itertools.pairwise(stops)]
                whole = math.fsum(leg for leg, _ in legs)
                if whole < cost[index, order[0], last]:
                    cost[index, order[0], last] = whole
                    way[index, order[0], last] = (order[0], *(stop for _, leg in legs for stop in leg))
    return _Walks(members, cost, way)


def _shortest(steps: Floats, members: Sequence[int]) -> dict[tuple[int, int], tuple[float, tuple[int, ...]]]:
    """Return the cheapest ways between layouts through others: the cost, and the layouts after the first."""
    found: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {
        (a, b): (float(steps[a, b]), (b,)) for a in members for b in members
    }
    for middle, a, b in itertools.product(members, repeat=3):
        cost = found[a, middle][0] + found[middle, b][0]
        if cost < found[a, b][0]:
            found[a, b] = cost, found[a, middle][1] + found[middle, b][1]
    return found
