"""The repetend as one CP-SAT query; the question of `schedsearch.solver.smt`.

With many devices or several micro-batches per repetend, CP-SAT often finds a repetend, or proves that there
is none, where Z3 takes long; Z3 is the quicker where memory is not shared in turns, as in X-shapes.
"""

from __future__ import annotations

import itertools
import math
from threading import Event

from ortools.sat.python import cp_model

from schedsearch.bounds.timeline import Timeline
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.interrupts import interruptible
from schedsearch.solver.query import Answer, MemoryTurn, Query, Spend, has_room, memory_turn, uncounted

_WORK = 0.18
"""CP-SAT's deterministic time for a unit of work: it counted 0.11 to 0.26 a second, as in `smt._WORK`."""


_WORK_OF_CONSTRAINT = 5e-5
"""Units of work to make a constraint of a model."""


def decide(
    query: Query,
    timeout_s: float = 60.0,
    seed: int = 0,
    work: float = math.inf,
    spend: Spend = uncounted,
    unwanted: Event | None = None,
) -> tuple[Answer, Repetend | None]:
    """Decide by CP-SAT whether a repetend exists; see `schedsearch.solver.query.LimitedSolver`."""
    if not has_room(query):
        return Answer.NO, None
    model = _Model(query)
    model.start_at_heads()
    model.wait_for_inputs()
    model.run_one_at_a_time()
    model.respect_memory()
    model.order_micro_batches()
    model.limit_span()
    model.limit_latency()
    return model.ask(timeout_s, seed, work, spend, unwanted)


def within(budget: SolverBudget) -> cp_model.CpSolver:
    """Return a solver that spends no more than a budget, for orders of blocks on devices."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1  # more would make answers depend on the machine
    solver.parameters.max_deterministic_time = budget.work
    solver.parameters.max_time_in_seconds = budget.timeout_s
    solver.parameters.random_seed = budget.seed
    solver.parameters.use_strong_propagation_in_disjunctive = True
    return solver


def solve(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    spend: Spend = uncounted,
    unwanted: Event | None = None,
    work_of_time: float = 1.0,
) -> cp_model.CpSolverStatus:
    """Solve, unless Ctrl-C comes first, or another thread wants no answer any more.

    Args:
        solver: With its parameters.
        model: What to solve.
        spend: Told how much work was done.
        unwanted: Set by that thread.
        work_of_time: Units of work for one of the solver's deterministic time.

    Raises:
        KeyboardInterrupt: There was a Ctrl-C.
    """
    solver.parameters.catch_sigint_signal = False
    status = interruptible(lambda: solver.solve(model), solver.stop_search, unwanted)
    spend(
        solver.response_proto.deterministic_time * work_of_time
        + len(model.proto.constraints) * _WORK_OF_CONSTRAINT
    )
    return status


def _last_round(query: Query) -> int:
    """Return a round that no block need exceed: where a query has repetends, one has all rounds up to it.

    Proof: of all repetends take one with the least sum of rounds, the first round being 0. Let v be any round
    from 1 to the last, and move the blocks of round v and later one round earlier. For memory this is never
    worse: the blocks of earlier rounds include all that they wait for, so they hold nothing negative of any
    micro-batch (`bounds.require_capacity`), and a device's memory sums to 0 over its blocks, so what moves
    adds nothing positive to what is held. Nor is it for the span. So some difference of two rounds forbids
    it: a block b of round v or later must come so many rounds after a block a of an earlier one, and does.
    For a dependency with t ticks of transfer these are at most ``2 + ceil(t / period)`` rounds, as starts
    within a round differ by less than a period and no block takes longer than one; for all other rules (order
    of micro-batches, turns of memory, latency) at most 2. Going up from v = 1, take a rule that forbids it,
    and go on with the round after its b. Each b is another block, and none is of round 0, so that these
    differences, which together cover all rounds, are no more than 2 for each block but one, and what
    transfers add.
    """
    num_instances = query.micro_batches * len(query.placement.blocks)
    transfers = sum(math.ceil(ticks / query.period) for _, _, ticks in query.placement.transfer)
    return 2 * (num_instances - 1) + query.micro_batches * transfers


class _Model:
    """A query's variables; each method adds one family of constraints, as in `schedsearch.solver.smt`."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.placement = query.placement
        self.micro_batches = query.micro_batches
        self.period = query.period
        self.model = cp_model.CpModel()
        self.instances: list[Instance] = [
            (block.name, n) for block in self.placement.blocks for n in range(self.micro_batches)
        ]
        last = _last_round(query)
        self.round = {i: self.model.new_int_var(0, last, f"round {i}") for i in self.instances}
        self.start = {i: self.model.new_int_var(0, self.period - 1, f"start {i}") for i in self.instances}
        self.before: dict[tuple[Instance, Instance], cp_model.LiteralT] = {}

    def start_at_heads(self) -> None:
        """No block starts before the chain to it can end, and where one block comes first, it is in round 0.

        This follows from the rest, but the solver sees it at once, where else it goes along long chains.
        """
        for name, ticks in Timeline(self.placement, frozenset()).heads.items():
            for n in range(self.micro_batches):
                self.model.add(self._at((name, n)) >= ticks)
        sources = [block.name for block in self.placement.blocks if not block.after]
        if len(sources) == 1:
            self.model.add(self.round[sources[0], 0] == 0)

    def wait_for_inputs(self) -> None:
        """A block starts after the blocks of its micro-batch that it waits for."""
        for block in self.placement.blocks:
            for name in block.after:
                ticks = self._time(name) + self.placement.transfer_time(name, block.name)
                for n in range(self.micro_batches):
                    self.wait((name, n), (block.name, n), ticks)

    def wait(self, a: Instance, b: Instance, ticks: int, rounds: int = 0) -> None:
        """Instance b of so many rounds later starts at least so many ticks after a.

        In three cases by the difference of the rounds, as in `schedsearch.solver.smt`: CP-SAT learns far more
        from the literals of the cases than from one sum with the period as a coefficient.
        """
        whole, rest = divmod(ticks, self.period)
        later = self.round[b] - self.round[a] + rounds - whole
        self.model.add(later >= 0)
        for least, shift in ((1, 0), (2, self.period)):
            is_later = self.model.new_bool_var(f"{a} {rounds} {least} rounds before {b}")
            self.model.add(later >= least).only_enforce_if(is_later)
            self.model.add(later < least).only_enforce_if(~is_later)
            self.model.add(self.start[b] + shift >= self.start[a] + rest).only_enforce_if(~is_later)

    def run_one_at_a_time(self) -> None:
        """Of two blocks on a device one comes first in the round, and ends before the other's next start."""
        for device in range(self.placement.num_devices):
            here = self._on(device)
            for a, b in itertools.combinations(here, 2):
                if (a, b) not in self.before:
                    self.before[a, b] = a_first = self.model.new_bool_var(f"before {a} {b}")
                    self.before[b, a] = ~a_first
                    self._fit_before(a, b, a_first)
                    self._fit_before(b, a, ~a_first)
            self.model.add_no_overlap(
                self.model.new_fixed_size_interval_var(
                    self.start[i] + shift, self._time(i[0]), f"{i} {shift}"
                )
                for i in here
                for shift in (0, self.period)
            )

    def respect_memory(self) -> None:
        """A device never holds more than its capacity; see `schedsearch.solver.smt` for the sum."""
        if self.placement.free_memory is None:
            return
        transient = {i: self.placement.by_name[i[0]].transient for i in self.instances}
        for device, capacity in enumerate(self.placement.free_memory):
            if (turn := memory_turn(self.placement, device)) is not None:
                self._take_turns(turn)
                continue
            memory = {i: self.placement.by_name[i[0]].memory_on(device) for i in self._on(device)}
            here = [i for i, units in memory.items() if units]
            rounds = cp_model.LinearExpr.weighted_sum(
                [self.round[c] for c in here], [-memory[c] for c in here]
            )
            for b in memory:
                if memory[b] > 0 or transient[b] > 0:
                    others = [c for c in here if c != b]
                    earlier = cp_model.LinearExpr.weighted_sum(
                        [self.before[c, b] for c in others], [memory[c] for c in others]
                    )
                    self.model.add(rounds + earlier + memory[b] + transient[b] <= capacity)

    def _take_turns(self, turn: MemoryTurn) -> None:
        """With room for so many, each block that allocates waits for the one that releases before it."""
        for n in range(self.micro_batches):
            rounds, later = divmod(n + turn.room, self.micro_batches)
            release, allocation = (turn.releases, n), (turn.allocates, later)
            self.wait(release, allocation, self._time(turn.releases), rounds)

    def order_micro_batches(self) -> None:
        """Each block runs the micro-batches in their order; others are renamings (Tessel, Property IV.1)."""
        for block in self.placement.blocks:
            instances = [(block.name, n) for n in range(self.micro_batches)]
            for a, b in itertools.pairwise(instances):
                self.wait(a, b, block.time)
            if self.micro_batches > 1:
                self.wait(instances[-1], instances[0], block.time, 1)

    def limit_span(self) -> None:
        """Round 0 starts at tick 0 and ends by the span; without a limit the first block starts its round."""
        span = self.query.span
        if span is None:
            self.model.add(self.start[self.placement.topological_order[0].name, 0] == 0)
            return
        sources = [(block.name, 0) for block in self.placement.blocks if not block.after]
        self.model.add_min_equality(0, [self._at(source) for source in sources])
        for instance in self.instances:
            self.model.add(self._at(instance) + self._time(instance[0]) <= span)

    def limit_latency(self) -> None:
        """No block of a micro-batch ends later than so long after another's start."""
        if self.query.latency is None:
            return
        sources = [block.name for block in self.placement.blocks if not block.after]
        sinks = [block.name for block in self.placement.blocks if not self.placement.successors[block.name]]
        for b in sinks:
            for a in sources:
                for n in range(self.micro_batches):
                    end = self._at((b, n)) + self._time(b)
                    self.model.add(end <= self._at((a, n)) + self.query.latency)

    def ask(
        self, timeout_s: float, seed: int, work: float, spend: Spend, unwanted: Event | None
    ) -> tuple[Answer, Repetend | None]:
        """Return the answer to the model as it is now."""
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = timeout_s
        solver.parameters.max_deterministic_time = work * _WORK
        solver.parameters.random_seed = seed
        solver.parameters.num_workers = 1  # more would make answers depend on the machine
        status = solve(solver, self.model, spend, unwanted, 1 / _WORK)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Answer.YES, self.repetend(solver)
        return (Answer.NO if status == cp_model.INFEASIBLE else Answer.UNKNOWN), None

    def repetend(self, solver: cp_model.CpSolver) -> Repetend:
        """Return the repetend of the solver's answer."""
        first = {
            i: solver.value(self.round[i]) * self.period + solver.value(self.start[i]) for i in self.instances
        }
        return Repetend.from_first_starts(self.placement, self.micro_batches, self.period, first)

    def _time(self, name: str) -> int:
        return self.placement.by_name[name].time

    def _at(self, instance: Instance) -> cp_model.LinearExpr:
        return self.round[instance] * self.period + self.start[instance]

    def _on(self, device: int) -> list[Instance]:
        return [i for i in self.instances if device in self.placement.by_name[i[0]].devices]

    def _fit_before(self, a: Instance, b: Instance, literal: cp_model.LiteralT) -> None:
        ends_before = self.model.add(self.start[a] + self._time(a[0]) <= self.start[b])
        returns_after = self.model.add(self.start[b] + self._time(b[0]) <= self.start[a] + self.period)
        ends_before.only_enforce_if(literal)
        returns_after.only_enforce_if(literal)
