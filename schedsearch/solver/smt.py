"""The repetend as one Z3 query.

Tessel enumerates which micro-batch each block of the repetend belongs to, and asks Z3 for the best order of
each candidate (Tessel, Sec. IV-B, Alg. 1). Here one query decides a period over all candidates at once.
Block b of the repetend's micro-batch n starts at ``q * T + r``, ``0 <= r < T``, and again every period T.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from threading import Event

import z3

from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance
from schedsearch.solver.interrupts import interruptible
from schedsearch.solver.query import Answer, MemoryTurn, Query, Spend, has_room, memory_turn, uncounted

_WORK = 9_000_000
"""Z3's `rlimit` for a unit of work: it counted 5.6 to 14.5 million a second, one core, of those of 48
questions that took half a second or more."""

_CPU_SECONDS_FOR_WORK = 1.0, 6.0
"""Seconds of a core after which to give up, at least and for each unit of work, which takes 0.6 to 1.6 s:
rarely Z3 counts next to nothing for minutes (a loop of two chunks on 16 devices, three micro-batches)."""

_WORK_OF_CONSTRAINT = 2.5e-4
"""Units of work to make a constraint of a model."""

_MOST_RLIMIT = 2**32 - 1
"""More work than that is not limited."""


def decide(
    query: Query,
    timeout_s: float = 60.0,
    seed: int = 0,
    work: float = math.inf,
    spend: Spend = uncounted,
    unwanted: Event | None = None,
) -> tuple[Answer, Repetend | None]:
    """Decide by Z3 whether a repetend exists; see `schedsearch.solver.query.LimitedSolver`."""
    if not has_room(query):
        return Answer.NO, None
    model = _Model(query)
    model.wait_for_inputs()
    model.run_one_at_a_time()
    model.respect_memory()
    model.order_micro_batches()
    model.limit_span()
    model.limit_latency()
    return model.ask(timeout_s, seed, work, spend, unwanted)


class _Model:
    """A query's variables; each method adds one family of constraints.

    They have a context of Z3 to themselves: in the one that all queries of a process share, the same query
    has another answer after other queries.
    """

    def __init__(self, query: Query) -> None:
        self.query = query
        self.placement = query.placement
        self.micro_batches = query.micro_batches
        self.period = query.period
        self.context = z3.Context()
        self.constraints: list[z3.BoolRef] = []
        self.instances: list[Instance] = [
            (block.name, n) for block in self.placement.blocks for n in range(self.micro_batches)
        ]
        self.round = {instance: z3.Int(f"round {instance}", self.context) for instance in self.instances}
        self.start = {instance: z3.Int(f"start {instance}", self.context) for instance in self.instances}
        self.before: dict[tuple[Instance, Instance], z3.BoolRef] = {}
        for instance in self.instances:
            self.add(self.round[instance] >= 0)
            self.add(self.start[instance] >= 0, self.start[instance] < self.period)

    def add(self, *constraints: z3.BoolRef) -> None:
        """Add constraints."""
        self.constraints += constraints

    def wait_for_inputs(self) -> None:
        """A block starts after the blocks of its micro-batch that it waits for."""
        for block in self.placement.blocks:
            for name in block.after:
                ticks = self.placement.by_name[name].time + self.placement.transfer_time(name, block.name)
                for n in range(self.micro_batches):
                    self.wait((name, n), (block.name, n), ticks)

    def wait(self, a: Instance, b: Instance, ticks: int, rounds: int = 0) -> None:
        """Instance b of so many rounds later starts at least so many ticks after a.

        ``q_b * T + r_b >= q_a * T + r_a + ticks`` has T as a coefficient, which is hard on the solver. As
        ``|r_b - r_a| < T``, it is one of three cases by the difference of the rounds, without coefficients.
        """
        whole, rest = divmod(ticks, self.period)
        later = self.round[b] - self.round[a] + rounds - whole
        self.add(later >= 0)
        self.add(z3.Or(later >= 1, self.start[b] >= self.start[a] + rest))
        self.add(z3.Or(later >= 2, self.start[b] + self.period >= self.start[a] + rest))

    def run_one_at_a_time(self) -> None:
        """Of two blocks on a device one comes first in the round, and ends before the other's next start."""
        for device in range(self.placement.num_devices):
            for a, b in itertools.combinations(self._on(device), 2):
                if (a, b) in self.before:
                    continue
                a_first = z3.Bool(f"before {a} {b}", self.context)
                self.before[a, b] = a_first
                self.before[b, a] = z3.Not(a_first)
                self.add(z3.If(a_first, self._fits_before(a, b), self._fits_before(b, a)))

    def respect_memory(self) -> None:
        """A device never holds more than its capacity.

        Just after a block of a round starts, block c has run as often as its round lies behind, once more if
        it comes earlier in the round. A device's memory sums to 0 over its blocks, so the round cancels.
        Where one block allocates what one other releases, it is enough that they take turns.
        """
        if self.placement.free_memory is None:
            return
        transient = {instance: self.placement.by_name[instance[0]].transient for instance in self.instances}
        for device, capacity in enumerate(self.placement.free_memory):
            if (turn := memory_turn(self.placement, device)) is not None:
                self._take_turns(turn)
                continue
            memory = {i: self.placement.by_name[i[0]].memory_on(device) for i in self._on(device)}
            on_device = [instance for instance, units in memory.items() if units]
            rounds = z3.Sum([-memory[c] * self.round[c] for c in on_device])
            for b in memory:
                if memory[b] > 0 or transient[b] > 0:
                    earlier = [z3.If(self.before[c, b], memory[c], 0) for c in on_device if c != b]
                    self.add(rounds + z3.Sum(earlier) + memory[b] + transient[b] <= capacity)

    def _take_turns(self, turn: MemoryTurn) -> None:
        """With room for so many, each block that allocates waits for the one that releases before it."""
        for n in range(self.micro_batches):
            rounds, later = divmod(n + turn.room, self.micro_batches)
            release, allocation = (turn.releases, n), (turn.allocates, later)
            self.wait(release, allocation, self.placement.by_name[turn.releases].time, rounds)

    def order_micro_batches(self) -> None:
        """Each block runs the micro-batches in their order; others are renamings (Tessel, Property IV.1)."""
        for block in self.placement.blocks:
            instances = [(block.name, n) for n in range(self.micro_batches)]
            for a, b in itertools.pairwise(instances):
                self.add(self._starts_before(a, b, 0))
            if self.micro_batches > 1:
                self.add(self._starts_before(instances[-1], instances[0], 1))

    def limit_span(self) -> None:
        """Round 0 starts at tick 0 and ends by the span, in two cases as in `wait_for_inputs`.

        Tick 0 is the start of whichever source comes first. Without a limit it is that of the first
        block: any repetend can be turned until it is.
        """
        span = self.query.span
        if span is None:
            self.add(self.start[self.placement.topological_order[0].name, 0] == 0)
            return
        sources = [(block.name, 0) for block in self.placement.blocks if not block.after]
        self.add(z3.Or([z3.And(self.round[s] == 0, self.start[s] == 0) for s in sources]))
        for instance in self.instances:
            last_start = span - self.placement.by_name[instance[0]].time
            rounds, rest = divmod(last_start, self.period)
            self.add(self.round[instance] <= rounds)
            self.add(z3.Or(self.round[instance] < rounds, self.start[instance] <= rest))

    def limit_latency(self) -> None:
        """No block of a micro-batch ends later than so long after another's start, in cases likewise."""
        if self.query.latency is None:
            return
        sources = [block.name for block in self.placement.blocks if not block.after]
        sinks = [block for block in self.placement.blocks if not self.placement.successors[block.name]]
        for block in sinks:
            rounds, rest = divmod(self.query.latency - block.time, self.period)
            for name in sources:
                for n in range(self.micro_batches):
                    a, b = (name, n), (block.name, n)
                    later = self.round[b] - self.round[a] - rounds
                    self.add(later <= 1)
                    self.add(z3.Or(later <= -1, self.start[b] <= self.start[a] + rest))
                    self.add(z3.Or(later <= 0, self.start[b] + self.period <= self.start[a] + rest))

    def ask(
        self, timeout_s: float, seed: int, work: float, spend: Spend, unwanted: Event | None
    ) -> tuple[Answer, Repetend | None]:
        """Return the answer to the model as it is now."""
        solver = z3.SolverFor("QF_LIA", self.context)
        solver.add(self.constraints)
        solver.set("timeout", max(1, int(timeout_s * 1000)))
        solver.set("random_seed", seed)
        solver.set("ctrl_c", False)
        if work * _WORK <= _MOST_RLIMIT:
            solver.set("rlimit", int(work * _WORK))
        cpu_limit_s = _CPU_SECONDS_FOR_WORK[0] + _CPU_SECONDS_FOR_WORK[1] * work
        verdict = interruptible(solver.check, solver.interrupt, unwanted, cpu_limit_s)
        counted = solver.statistics().get_key_value("rlimit count") / _WORK
        spent = work if verdict == z3.unknown and work < math.inf else min(counted, work)
        spend(spent + len(self.constraints) * _WORK_OF_CONSTRAINT)
        if verdict == z3.sat:
            return Answer.YES, self.repetend(solver.model())
        return (Answer.NO if verdict == z3.unsat else Answer.UNKNOWN), None

    def repetend(self, model: z3.ModelRef) -> Repetend:
        """Return the repetend of a solver's model."""

        def value(variable: z3.ArithRef) -> int:
            return int(model.eval(variable, model_completion=True).as_long())

        first = {i: value(self.round[i]) * self.period + value(self.start[i]) for i in self.instances}
        return Repetend.from_first_starts(self.placement, self.micro_batches, self.period, first)

    def _on(self, device: int) -> Iterator[Instance]:
        return (
            instance for instance in self.instances if device in self.placement.by_name[instance[0]].devices
        )

    def _fits_before(self, a: Instance, b: Instance) -> z3.BoolRef:
        ends_before = self.start[a] + self.placement.by_name[a[0]].time <= self.start[b]
        returns_after = self.start[b] + self.placement.by_name[b[0]].time <= self.start[a] + self.period
        return z3.And(ends_before, returns_after)

    def _starts_before(self, a: Instance, b: Instance, rounds: int) -> z3.BoolRef:
        """The start of `a` is before that of `b` so many rounds on."""
        later = self.round[b] + rounds - self.round[a]
        return z3.Or(later >= 1, z3.And(later == 0, self.start[a] < self.start[b]))
