"""A second question to Z3 whether a repetend of a period exists, with an encoding independent of the search.

The textbook's modulo schedule: the block instances of round 0 get integer starts, and run again every
period T. Each start is written as a number of two digits in base T, a round and a tick of the clock's face,
because Z3 is a hundred times slower where T is a coefficient. Knows none of the search's short cuts (memory
taken in turns, waits by cases, compaction), and says nothing of which periods are of interest. It states the
rules of `schedsearch.model` a second time on purpose, so that a mistake there is seen here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import z3

from placements import Block, Placement
from placements.modes import Chosen
from schedsearch.schedule import Instance

_ticks, _transient = attrgetter("time"), attrgetter("transient")

Digits = tuple[Any, Any]
"""A time as the number ``first * T + second`` with ``0 <= second < T``; both are Z3's terms."""


def find_starts(
    placement: Placement,
    micro_batches: int,
    period: int,
    time_limit_s: float,
    span: int | None = None,
    latency: int | None = None,
) -> tuple[bool | None, dict[Instance, int], tuple[Chosen, ...]]:
    """Return whether a repetend exists, the starts of its first round (ticks, of any sign), and its modes.

    Args:
        placement: What runs where, without optimizer blocks; its capacities count.
        micro_batches: Micro-batches per repetend.
        period: Ticks.
        time_limit_s: Seconds after which the answer is None.
        span: Longest time from first start to last end of one round's micro-batches, in ticks; None for any.
        latency: Longest time from first start to last end of each single micro-batch; None for any.
    """
    encoding = _Encoding(placement, micro_batches, period)
    encoding.choose_modes()
    encoding.wait_for_inputs()
    encoding.run_one_at_a_time()
    encoding.respect_memory()
    encoding.keep_span_and_latency(span, latency)
    encoding.order_micro_batches()
    outcome = verdict(encoding.solver, time_limit_s)
    return (True, *encoding.answer()) if outcome == "sat" else (False if outcome == "unsat" else None, {}, ())


def verdict(solver: Any, time_limit_s: float) -> str:
    """Return Z3's verdict on a solver's constraints within a time limit: ``sat``, ``unsat`` or ``unknown``.

    Raises:
        KeyboardInterrupt: Ctrl-C reached Z3, which does not tell Python of it.
    """
    solver.set("timeout", max(1, int(time_limit_s * 1000)))
    outcome = str(solver.check())
    if outcome == "unknown" and "interrupted" in solver.reason_unknown():
        raise KeyboardInterrupt
    return outcome


class _Encoding:
    """A question's variables and rules; each method adds one rule."""

    def __init__(self, placement: Placement, micro_batches: int, period: int) -> None:
        """Begin with the digits; the first instance starts at 0, since a repetend may be moved in time."""
        self.placement, self.period = placement, period
        self.by_name, self.numbers = placement.by_name, range(micro_batches)
        self.context = z3.Context()  # of its own, as a search may run in another thread
        self.solver = z3.SolverFor("QF_LIA", self.context)
        self.start: dict[Instance, Digits] = {
            (name, n): tuple(z3.Int(f"{digit} of {name} {n}", self.context) for digit in ("round", "tick"))
            for name in self.by_name
            for n in self.numbers
        }
        self.solver.add([z3.And(tick >= 0, tick < period) for _, tick in self.start.values()])
        self.solver.add([digit == 0 for digit in next(iter(self.start.values()))])
        self.choices = [
            [
                [z3.Bool(f"{choice} of {i} {n}", self.context) for choice in decision.names]
                for i, decision in enumerate(placement.decisions)
            ]
            for n in self.numbers
        ]

    def choose_modes(self) -> None:
        """Each decision has one choice, and no block in it is longer than the period, to not meet itself."""
        for choices in itertools.chain(*self.choices):
            self.solver.add(z3.PbEq([(choice, 1) for choice in choices], 1))
        for instance in self.start:
            for choice, block in self._alternatives(instance):
                if block.time > self.period:
                    self.solver.add(z3.Not(choice))

    def wait_for_inputs(self) -> None:
        """A block starts no sooner than each input's start, time and transfer later.

        So does one that does not run, which takes no time: what waits for it then waits for its inputs.
        """
        for (name, n), start in self.start.items():
            for source in self.by_name[name].after:
                delay = self.placement.transfer_time(source, name)
                for choice, run in self._alternatives((source, n)):
                    ready = self._plus((source, n), run.time + delay)
                    self.solver.add(z3.Implies(choice, _at_most(ready, start)))

    def run_one_at_a_time(self) -> None:
        """Add that instances on the same stream of a device do not overlap, in any round.

        This is ``start(c) + k * T + time(c) <= start(b)`` and ``start(b) + time(b) <= start(c) + (k + 1) *
        T`` for some whole k, which is the rounds' difference, less one where c has the later tick: of all
        rounds of c the one just before b ends before b starts, and the next starts after b ends.
        """
        for c, b in itertools.combinations(self.start, 2):
            if self._lanes(c) & self._lanes(b):
                left_out = [choice for i in (c, b) for choice, run in self._alternatives(i) if not run.time]
                self.solver.add(z3.Or(self._fits(c, b), self._fits(b, c), *left_out))

    def respect_memory(self) -> None:
        """Just after any instance b starts, no device that it runs on holds more than its capacity.

        Until then instance c has started in ``k(c, b) + 1`` more rounds than the number of b's own, where k
        is as in `run_one_at_a_time`, and b itself in one more. What the instances hold on a device sums to
        0 in all modes, so the ones cancel, and held is the sum of ``memory(c) * k(c, b)`` over all c other
        than b, where memory(c) is what c holds on that device. Those that run just then on other streams
        need what is theirs while they run, too. The same is so for the device's host.
        """
        for device, b in itertools.product(range(self.placement.num_devices), self.start):
            if device not in self.by_name[b[0]].devices:
                continue
            others = [c for c in self.start if device in self.by_name[c[0]].devices and c != b]
            beside = [c for c in others if not self._lanes(c) & self._lanes(b)]
            needed = [self._value(c, _transient, self._runs_at_start_of(c, b)) for c in beside]
            needed.append(self._value(b, _transient))
            for limits, units, more in (
                (self.placement.free_memory, lambda run, device=device: run.memory_on(device), needed),
                (self.placement.host_memory, lambda run: run.host_memory, [z3.IntVal(0, self.context)]),
            ):
                if limits is not None:
                    held = [self._value(c, units, self._rounds_between(c, b)) for c in others]
                    self.solver.add(z3.Sum(held + more) <= limits[device])

    def keep_span_and_latency(self, span: int | None, latency: int | None) -> None:
        """No instance of a round, or micro-batch, ends later than the limit after another of it starts."""
        for a, b in itertools.product(self.start, repeat=2):
            for limit in (span, latency if a[1] == b[1] else None):
                for choice, run in self._alternatives(b) if limit is not None else ():
                    if run.time:  # both of them run
                        within = _at_most(self.start[b], self._plus(a, (limit or 0) - run.time))
                        self.solver.add(z3.Implies(z3.And(choice, self._value(a, _ticks) != 0), within))

    def order_micro_batches(self) -> None:
        """Every block runs the micro-batches in the order of their numbers, which loses no repetend.

        Proof. Give the k-th start of every block, over all rounds, to micro-batch k. Each device starts the
        same blocks at the same ticks. If every start of b comes w or more ticks, of any sign, after that of a
        of its micro-batch, then at any tick b has started no more often than a had w ticks before, so that
        its k-th start comes w or more after the k-th of a: inputs and latency are kept. If b of round 0
        starts from m to M(b), then before m it has not run more often than in the rounds before, and by M(b)
        at least as often as with round 0, so that its starts of round 0 are there again: so is the span.

        Where a micro-batch has modes, its blocks stay together: whole micro-batches of a round are numbered
        by the starts of their first block.
        """
        for name in [*self.by_name][: 1 if self.placement.decisions else None]:
            starts = [self.start[name, n] for n in self.numbers]
            if not self.placement.decisions and len(starts) > 1:
                starts.append((starts[0][0] + 1, starts[0][1]))
            self.solver.add([_at_most(a, b) for a, b in itertools.pairwise(starts)])

    def answer(self) -> tuple[dict[Instance, int], tuple[Chosen, ...]]:
        """Return the ticks of the model that Z3 found, of the blocks that run, and their modes if any."""
        model = self.solver.model()
        chosen: list[Chosen] = [
            tuple(
                next(k for k, mode in enumerate(of) if z3.is_true(model.eval(mode, True))) for of in several
            )
            for several in self.choices
        ]
        first = {
            (name, n): sum(
                weight * int(model.eval(digit, model_completion=True).as_long())
                for weight, digit in zip((self.period, 1), digits, strict=True)
            )
            for (name, n), digits in self.start.items()
            if name in self.placement.as_run(chosen[n]).by_name
        }
        return first, tuple(chosen) if self.placement.decisions else ()

    def _alternatives(self, instance: Instance) -> Iterator[tuple[Any, Block]]:
        """Yield each mode of an instance as a block, with the term that is true if the mode is chosen."""
        name, n = instance
        decision = self.placement.decision_of.get(name)
        choices = [z3.BoolVal(True, self.context)] if decision is None else self.choices[n][decision]
        yield from zip(choices, self.placement.alternatives(name), strict=True)

    def _value(self, instance: Instance, of: Callable[[Block], int], times: Any = 1) -> Any:
        """Return a figure of an instance in its chosen mode, multiplied by `times`."""
        runs = list(self._alternatives(instance))
        if len({of(run) for _, run in runs}) == 1:
            return z3.IntVal(of(runs[0][1]), self.context) * times
        return z3.Sum([z3.If(choice, of(run) * times, 0) for choice, run in runs])

    def _lanes(self, instance: Instance) -> set[int]:
        return set(self.placement.lanes_of(self.by_name[instance[0]]))

    def _plus(self, a: Instance, ticks: int) -> Digits:
        """Return the time `ticks` after an instance's start, by adding digits with a carry."""
        rounds, rest = divmod(ticks, self.period)
        round_, tick = self.start[a]
        carry = tick + rest >= self.period
        return round_ + rounds + z3.If(carry, 1, 0), tick + rest - z3.If(carry, self.period, 0)

    def _fits(self, c: Instance, b: Instance) -> z3.BoolRef:
        tick_c, tick_b = self.start[c][1], self.start[b][1]
        ends_before = tick_c + self._value(c, _ticks) <= tick_b
        return z3.And(ends_before, tick_b + self._value(b, _ticks) <= tick_c + self.period)

    def _rounds_between(self, c: Instance, b: Instance) -> Any:
        """Return k of `run_one_at_a_time`."""
        (round_c, tick_c), (round_b, tick_b) = self.start[c], self.start[b]
        return round_b - round_c - z3.If(tick_c <= tick_b, 0, 1)

    def _runs_at_start_of(self, c: Instance, b: Instance) -> Any:
        """Return 1 if some round of c, on another stream, runs when b starts, and 0 otherwise."""
        tick_c, tick_b, ticks = self.start[c][1], self.start[b][1], self._value(c, _ticks)
        just_so = z3.And(tick_c <= tick_b, tick_b < tick_c + ticks)
        return z3.If(z3.Or(just_so, tick_b + self.period < tick_c + ticks), 1, 0)


def _at_most(a: Digits, b: Digits) -> z3.BoolRef:
    """Return whether one number of two digits is at most another."""
    return z3.Or(a[0] < b[0], z3.And(a[0] == b[0], a[1] <= b[1]))
