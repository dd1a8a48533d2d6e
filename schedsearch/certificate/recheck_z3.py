"""Asks Z3 once more whether a repetend of a period exists, without anything that the search does.

The textbook's modulo schedule: the block instances of round 0 get integer starts, and run again every
period T. Each start is written as a number of two digits in base T, a round and a tick of the clock's face,
because Z3 is a hundred times slower where T is a coefficient. Knows none of the search's short cuts (memory
taken in turns, waits by cases, compaction), and says nothing of which periods are of interest. It states the
rules of `schedsearch.model` a second time on purpose, so that a mistake there is seen here.
"""

from __future__ import annotations

import itertools
from typing import Any

import z3

from schedsearch.schedule import Instance
from schedsearch.solver.interrupts import interruptible
from schedsearch.solver.query import Answer, Query

Digits = tuple[Any, Any]
"""A time as the number ``first * T + second`` with ``0 <= second < T``; both are Z3's terms."""


def find_starts(query: Query, timeout_s: float) -> tuple[Answer, dict[Instance, int] | None]:
    """Return whether there is a repetend, and the starts of its first round in ticks, of any sign.

    Args:
        query: What is asked; those of the repetend.
        timeout_s: Seconds after which the answer is UNKNOWN.

    Raises:
        KeyboardInterrupt: Z3 was interrupted from the keyboard.
    """
    if any(block.time > query.period for block in query.placement.blocks):
        return Answer.NO, None  # it would run while its next round does
    encoding = _Encoding(query)
    encoding.wait_for_inputs()
    encoding.run_one_at_a_time()
    encoding.respect_memory()
    encoding.keep_span()
    encoding.keep_latency()
    encoding.order_micro_batches()
    encoding.solver.set("timeout", max(1, int(timeout_s * 1000)))
    encoding.solver.set("ctrl_c", False)
    verdict = interruptible(encoding.solver.check, encoding.solver.interrupt)
    if verdict == z3.sat:
        return Answer.YES, encoding.starts()
    if verdict == z3.unsat:
        return Answer.NO, None
    return Answer.UNKNOWN, None


class _Encoding:
    """A question's variables and rules; each method adds one rule."""

    def __init__(self, query: Query) -> None:
        """Begin with the digits; the first instance starts at 0, since a repetend may be moved in time."""
        self.query = query
        self.by_name = query.placement.by_name
        context = z3.Context()  # of its own, as a search may run in another thread
        self.solver = z3.SolverFor("QF_LIA", context)
        self.start: dict[Instance, Digits] = {}
        for name in self.by_name:
            for micro_batch in range(query.micro_batches):
                number, tick = f"round of {name} {micro_batch}", f"tick of {name} {micro_batch}"
                digits = z3.Int(number, context), z3.Int(tick, context)
                self.start[name, micro_batch] = digits
                self.solver.add(digits[1] >= 0, digits[1] < query.period)
        self.solver.add([digit == 0 for digit in next(iter(self.start.values()))])

    def wait_for_inputs(self) -> None:
        """A block starts no sooner than each input's start, time and transfer later."""
        for name, block in self.by_name.items():
            for source in block.after:
                ticks = self.by_name[source].time + self.query.placement.transfer_time(source, name)
                for micro_batch in range(self.query.micro_batches):
                    self.solver.add(
                        _at_most(self._plus((source, micro_batch), ticks), self.start[name, micro_batch])
                    )

    def run_one_at_a_time(self) -> None:
        """On the clock's face one of two instances ends before the other starts, and that before it returns.

        This is ``start(c) + k * T + time(c) <= start(b)`` and ``start(b) + time(b) <= start(c) + (k + 1) *
        T`` for some whole k, which is the rounds' difference, less one where c has the later tick: of all
        rounds of c the one just before b ends before b starts, and the next starts after b ends.
        """
        for c, b in itertools.combinations(self.start, 2):
            if set(self.by_name[c[0]].devices) & set(self.by_name[b[0]].devices):
                self.solver.add(z3.Or(self._fits(c, b), self._fits(b, c)))

    def respect_memory(self) -> None:
        """Just after any instance b starts, no device that it runs on holds more than its capacity.

        Until then instance c has started in ``k(c, b) + 1`` more rounds than the number of b's own, where k
        is as in `run_one_at_a_time`, and b itself in one more. What the instances hold on a device sums to
        0, so the ones cancel, and held is the sum of ``memory(c) * k(c, b)`` over all c other than b, where
        memory(c) is what c holds on that device.
        """
        for device, capacity in enumerate(self.query.placement.free_memory or ()):
            here = [i for i in self.start if device in self.by_name[i[0]].devices]
            memory = {i: self.by_name[i[0]].memory_on(device) for i in here}
            for b in here:
                held = [memory[c] * self._rounds_between(c, b) for c in here if c != b]
                self.solver.add(z3.Sum(held) + self.by_name[b[0]].transient <= capacity)

    def keep_span(self) -> None:
        """No instance of a round ends later than the span after another of it starts."""
        if self.query.span is not None:
            for a, b in itertools.product(self.start, repeat=2):
                self._end_within(a, b, self.query.span)

    def keep_latency(self) -> None:
        """No block of a micro-batch ends later than the latency after another of it starts."""
        if self.query.latency is not None:
            for a, b in itertools.product(self.start, repeat=2):
                if a[1] == b[1]:
                    self._end_within(a, b, self.query.latency)

    def order_micro_batches(self) -> None:
        """Every block runs the micro-batches in the order of their numbers, which loses no repetend.

        Proof. Let micro-batch n, any whole number, start block b at s(b, n), and let N(b, t) be the number
        of n >= 0 with s(b, n) <= t, less that of n < 0 with s(b, n) > t. Let S(b, j) be the first t with
        N(b, t) > j. These are the same starts in ascending order, and ``N(b, t + T)`` is N(b, t) plus u,
        the number of micro-batches of the repetend, so that S is a repetend too. The ticks at which a
        device runs b are the same, and so is what it holds, the sum of b's memory there times N(b, t) but
        for a constant that is 0. If s(b, n) >= s(a, n) + w for all n, then N(b, t) <= N(a, t - w) for all
        t, hence S(b, j) >= S(a, j) + w: with positive w dependencies are kept, with negative w and a, b
        exchanged the latency. If all of round 0 is within m <= s(b, n) <= M(b), then N(b, m - 1) <= 0 and
        N(b, M(b)) >= u, so that S(b, 0) >= m and the last of the round's S(b, j) is at most M(b): the span
        is kept. Moving S in time, an origin can be chosen anew.
        """
        if self.query.micro_batches > 1:
            for name in self.by_name:
                starts = [self.start[name, micro_batch] for micro_batch in range(self.query.micro_batches)]
                for a, b in itertools.pairwise([*starts, (starts[0][0] + 1, starts[0][1])]):
                    self.solver.add(_at_most(a, b))

    def starts(self) -> dict[Instance, int]:
        """Return the ticks of the model that Z3 found."""
        model = self.solver.model()

        def value(digit: Any) -> int:
            return int(model.eval(digit, model_completion=True).as_long())

        return {
            i: value(round_) * self.query.period + value(tick) for i, (round_, tick) in self.start.items()
        }

    def _plus(self, a: Instance, ticks: int) -> Digits:
        """Return so many ticks after an instance's start, by adding digits with a carry."""
        rounds, rest = divmod(ticks, self.query.period)
        round_, tick = self.start[a]
        carry = tick + rest >= self.query.period
        return round_ + rounds + z3.If(carry, 1, 0), tick + rest - z3.If(carry, self.query.period, 0)

    def _fits(self, c: Instance, b: Instance) -> z3.BoolRef:
        tick_c, tick_b = self.start[c][1], self.start[b][1]
        ends_before = tick_c + self.by_name[c[0]].time <= tick_b
        return z3.And(ends_before, tick_b + self.by_name[b[0]].time <= tick_c + self.query.period)

    def _rounds_between(self, c: Instance, b: Instance) -> Any:
        """Return k of `run_one_at_a_time`."""
        (round_c, tick_c), (round_b, tick_b) = self.start[c], self.start[b]
        return round_b - round_c - z3.If(tick_c < tick_b, 0, 1)

    def _end_within(self, a: Instance, b: Instance, ticks: int) -> None:
        self.solver.add(_at_most(self.start[b], self._plus(a, ticks - self.by_name[b[0]].time)))


def _at_most(a: Digits, b: Digits) -> z3.BoolRef:
    """Return whether one number of two digits is at most another."""
    return z3.Or(a[0] < b[0], z3.And(a[0] == b[0], a[1] <= b[1]))
