"""Asks Z3 once more whether a repetend of a period exists, without anything that the search does.

The textbook's modulo schedule: the block instances of round 0 get integer starts, and run again every
period T. Each start is written as a number of two digits in base T, a round and a tick of the clock's face,
because Z3 is a hundred times slower where T is a coefficient. Knows none of the search's short cuts (memory
taken in turns, waits by cases, compaction), and says nothing of which periods are of interest. It states the
rules of `schedsearch.model` a second time on purpose, so that a mistake there is seen here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import z3

from placements import Block
from placements.modes import Chosen
from schedsearch.proof.check.certificate import Question
from schedsearch.proof.check.held_limit import verdict
from schedsearch.schedule import Instance

Digits = tuple[Any, Any]
"""A time as the number ``first * T + second`` with ``0 <= second < T``; both are Z3's terms."""


def find_starts(
    query: Question, time_limit_s: float
) -> tuple[bool | None, dict[Instance, int], tuple[Chosen, ...]]:
    """Return whether there is a repetend, the starts of its first round in ticks, of any sign, and its modes.

    Args:
        query: What is asked.
        time_limit_s: Seconds after which the answer is None.

    Raises:
        KeyboardInterrupt: Z3 was interrupted from the keyboard.
    """
    encoding = _Encoding(query)
    encoding.choose_modes()
    encoding.wait_for_inputs()
    encoding.run_one_at_a_time()
    encoding.respect_memory()
    encoding.keep_span_and_latency()
    encoding.order_micro_batches()
    found = verdict(encoding.solver, time_limit_s)
    if found == "sat":
        chosen = encoding.chosen()
        return True, encoding.starts(chosen), chosen
    return (False if found == "unsat" else None), {}, ()


class _Encoding:
    """A question's variables and rules; each method adds one rule."""

    def __init__(self, query: Question) -> None:
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
        self.choices = [
            [
                [z3.Bool(f"{choice} of {i} {n}", context) for choice in decision.names]
                for i, decision in enumerate(query.placement.decisions)
            ]
            for n in range(query.micro_batches)
        ]

    def choose_modes(self) -> None:
        """Each decision has one choice, in which every block fits in the period: or it would meet itself."""
        for of_micro_batch in self.choices:
            for choices in of_micro_batch:
                self.solver.add(z3.PbEq([(choice, 1) for choice in choices], 1))
        for instance in self.start:
            for choice, block in self._alternatives(instance):
                if block.time > self.query.period:
                    self.solver.add(z3.Not(choice))

    def wait_for_inputs(self) -> None:
        """A block starts no sooner than each input's start, time and transfer later.

        So does one that does not run, which takes no time: what waits for it then waits for its inputs.
        """
        for name, block in self.by_name.items():
            for source in block.after:
                delay = self.query.placement.transfer_time(source, name)
                for n in range(self.query.micro_batches):
                    for choice, run in self._alternatives((source, n)):
                        ready = self._plus((source, n), run.time + delay)
                        self.solver.add(z3.Implies(choice, _at_most(ready, self.start[name, n])))

    def run_one_at_a_time(self) -> None:
        """On the clock's face one of two instances ends before the other starts, and that before it returns.

        This is ``start(c) + k * T + time(c) <= start(b)`` and ``start(b) + time(b) <= start(c) + (k + 1) *
        T`` for some whole k, which is the rounds' difference, less one where c has the later tick: of all
        rounds of c the one just before b ends before b starts, and the next starts after b ends.
        """
        for c, b in itertools.combinations(self.start, 2):
            if set(self._lanes(c)) & set(self._lanes(b)):
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
        placement = self.query.placement
        for device in range(placement.num_devices):
            here = [i for i in self.start if device in self.by_name[i[0]].devices]
            kept = partial(Block.memory_on, device=device)
            for b in here:
                others = [c for c in here if c != b]
                if placement.free_memory is not None:
                    held = [self._value(c, kept, self._rounds_between(c, b)) for c in others]
                    held += [
                        self._value(c, _transient, self._runs_at_start_of(c, b))
                        for c in others
                        if not set(self._lanes(c)) & set(self._lanes(b))
                    ]
                    held.append(self._value(b, _transient))
                    self.solver.add(z3.Sum(held) <= placement.free_memory[device])
                if placement.host_memory is not None:
                    held = [self._value(c, _on_host, self._rounds_between(c, b)) for c in others]
                    held.append(z3.IntVal(0, self.solver.ctx))
                    self.solver.add(z3.Sum(held) <= placement.host_memory[device])

    def keep_span_and_latency(self) -> None:
        """No instance of a round, or micro-batch, ends later than the limit after another of it starts."""
        for a, b in itertools.product(self.start, repeat=2):
            for limit in (self.query.span, self.query.latency if a[1] == b[1] else None):
                if limit is not None:
                    self._end_within(a, b, limit)

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

        Where a micro-batch has modes, its blocks stay together: whole micro-batches of a round are numbered
        by the starts of their first block.
        """
        numbers = range(self.query.micro_batches)
        if self.choices[0]:
            starts = [self.start[next(iter(self.by_name)), n] for n in numbers]
            for a, b in itertools.pairwise(starts):
                self.solver.add(_at_most(a, b))
        elif len(numbers) > 1:
            for name in self.by_name:
                starts = [self.start[name, n] for n in numbers]
                for a, b in itertools.pairwise([*starts, (starts[0][0] + 1, starts[0][1])]):
                    self.solver.add(_at_most(a, b))

    def chosen(self) -> tuple[Chosen, ...]:
        """Return the modes of the model that Z3 found; none where nothing is to be decided."""
        model = self.solver.model()

        def number(choices: Sequence[Any]) -> int:
            return next(k for k, each in enumerate(choices) if z3.is_true(model.eval(each, True)))

        found = tuple(tuple(map(number, each)) for each in self.choices)
        return found if self.query.placement.decisions else ()

    def starts(self, chosen: tuple[Chosen, ...]) -> dict[Instance, int]:
        """Return the ticks of the model that Z3 found, of the blocks that run in these modes."""
        model = self.solver.model()

        def value(digit: Any) -> int:
            return int(model.eval(digit, model_completion=True).as_long())

        return {
            (name, n): value(round_) * self.query.period + value(tick)
            for (name, n), (round_, tick) in self.start.items()
            if not chosen or name in self.query.placement.as_run(chosen[n]).by_name
        }

    def _alternatives(self, instance: Instance) -> Iterator[tuple[Any, Block]]:
        """Yield an instance as each choice runs it, with the term that is true if it does."""
        name, n = instance
        runs = self.query.placement.alternatives(name)
        decision = self.query.placement.decision_of.get(name)
        if decision is None:
            yield z3.BoolVal(True, self.solver.ctx), runs[0]
        else:
            yield from zip(self.choices[n][decision], runs, strict=True)

    def _value(self, instance: Instance, of: Callable[[Block], int], times: Any = 1) -> Any:
        """Return a number of an instance as it is run, so many times."""
        runs = list(self._alternatives(instance))
        if len({of(run) for _, run in runs}) == 1:
            return z3.IntVal(of(runs[0][1]), self.solver.ctx) * times
        return z3.Sum([z3.If(choice, of(run) * times, 0) for choice, run in runs])

    def _lanes(self, instance: Instance) -> tuple[int, ...]:
        return self.query.placement.lanes_of(self.by_name[instance[0]])

    def _plus(self, a: Instance, ticks: int) -> Digits:
        """Return so many ticks after an instance's start, by adding digits with a carry."""
        rounds, rest = divmod(ticks, self.query.period)
        round_, tick = self.start[a]
        carry = tick + rest >= self.query.period
        return round_ + rounds + z3.If(carry, 1, 0), tick + rest - z3.If(carry, self.query.period, 0)

    def _fits(self, c: Instance, b: Instance) -> z3.BoolRef:
        tick_c, tick_b = self.start[c][1], self.start[b][1]
        ends_before = tick_c + self._value(c, _ticks) <= tick_b
        return z3.And(ends_before, tick_b + self._value(b, _ticks) <= tick_c + self.query.period)

    def _rounds_between(self, c: Instance, b: Instance) -> Any:
        """Return k of `run_one_at_a_time`."""
        (round_c, tick_c), (round_b, tick_b) = self.start[c], self.start[b]
        return round_b - round_c - z3.If(tick_c <= tick_b, 0, 1)

    def _runs_at_start_of(self, c: Instance, b: Instance) -> Any:
        """Return 1 if some round of c, on another stream, runs when b starts, and 0 otherwise."""
        tick_c, tick_b, ticks = self.start[c][1], self.start[b][1], self._value(c, _ticks)
        just_so = z3.And(tick_c <= tick_b, tick_b < tick_c + ticks)
        return z3.If(z3.Or(just_so, tick_b + self.query.period < tick_c + ticks), 1, 0)

    def _end_within(self, a: Instance, b: Instance, ticks: int) -> None:
        """Let b end so many ticks after a starts at the latest, if both run."""
        a_runs = self._value(a, _ticks) != 0
        for choice, run in self._alternatives(b):
            if run.time:
                within = _at_most(self.start[b], self._plus(a, ticks - run.time))
                self.solver.add(z3.Implies(z3.And(choice, a_runs), within))


def _ticks(run: Block) -> int:
    return run.time


def _transient(run: Block) -> int:
    return run.transient


def _on_host(run: Block) -> int:
    return run.host_memory


def _at_most(a: Digits, b: Digits) -> z3.BoolRef:
    """Return whether one number of two digits is at most another."""
    return z3.Or(a[0] < b[0], z3.And(a[0] == b[0], a[1] <= b[1]))
