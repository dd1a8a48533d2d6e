"""Tessel's Z3 encodings (Tessel, Sec. III-A, Eq. 1, and Sec. V): a repetend's order, and time-optimal phases.

As in the paper each block has one integer, its start; memory is summed up for every tick of the time line;
and the least value of the objective is found by binary search over satisfiability checks. So a query grows
with the ticks of its blocks, unlike those of `schedsearch.model`, from which it stands apart on purpose. The
paper sums up from tick to tick and takes the greatest; here each tick has its own sum, as in Eq. 1, which
takes Z3 about half the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import z3

from placements import Placement
from schedsearch.schedule import Instance
from schedsearch.solver.effort import Effort
from schedsearch.solver.interrupts import INTERRUPTS, interruptible
from schedsearch.solver.query import Verdict
from schedsearch.tessel.candidates import Indices, memory_at_entry


@dataclass
class Budget(Effort):
    """The time left to a search, and the number of its calls of the solver."""

    seed: int = 0
    calls: int = 0


class TesselQuery:
    """The starts of some blocks under the rules of Eq. 1, and an objective to make small.

    Raises:
        OutOfTimeError: The deadline came first.
        KeyboardInterrupt: Ctrl-C was pressed.
    """

    def __init__(
        self, placement: Placement, instances: Iterable[Instance], held: Sequence[int], budget: Budget
    ) -> None:
        """Write the rules down.

        Args:
            placement: What runs where.
            instances: The blocks. Inputs from other blocks are available from the beginning.
            held: Memory that each device holds at the beginning.
            budget: Time left, and counts of calls.
        """
        self.placement, self.budget = placement, budget
        context = z3.Context()  # of its own, as searches may run in several threads
        self.solver = z3.SolverFor("QF_LIA", context)
        self.objective = z3.Int("objective", context)
        self.start = {instance: z3.Int(f"start {instance}", context) for instance in instances}
        self.time = {instance: placement.by_name[instance[0]].time for instance in self.start}
        self.end = {instance: start + self.time[instance] for instance, start in self.start.items()}
        self.terms: list[tuple[Instance, Instance | None, int, int]] = []
        transfers = dict.fromkeys(placement.by_name, 0)
        for _, target, ticks in placement.transfer:
            transfers[target] += ticks
        self.horizon = sum(self.time[instance] + transfers[instance[0]] for instance in self.start)
        """Ticks of all blocks and transfers, one after another: none need start later."""
        for instance, start in self.start.items():
            self.solver.add(start >= 0, start <= self.horizon - self.time[instance])
        self.run_one_at_a_time()
        self.wait_for_inputs()
        self.respect_memory(held)

    def run_one_at_a_time(self) -> None:
        """Two blocks with a device in common do not overlap (Eq. 1, constraint 1)."""
        for a, b in itertools.combinations(self.start, 2):
            self.budget.require_s()
            if self.share_a_device(a, b):
                self.solver.add(z3.Or(self.end[a] <= self.start[b], self.end[b] <= self.start[a]))

    def wait_for_inputs(self) -> None:
        """A block starts after its micro-batch's inputs, plus transfer times (Eq. 1, constraint 3)."""
        for name, micro_batch in self.start:
            for source in self.placement.by_name[name].after:
                if (source, micro_batch) in self.start:
                    ticks = self.placement.transfer_time(source, name)
                    self.solver.add(self.end[source, micro_batch] + ticks <= self.start[name, micro_batch])

    def respect_memory(self, held: Sequence[int]) -> None:
        """No device holds more than its capacity at any tick (Eq. 1, constraint 2; Sec. V)."""
        for device, capacity in enumerate(self.placement.free_memory or ()):
            taken = [
                (start, units)
                for (name, _), start in self.start.items()
                if (units := self.placement.by_name[name].memory_on(device))
            ]
            for tick in range(self.horizon if taken else 0):
                self.budget.require_s()
                changes = [z3.If(start <= tick, memory, 0) for start, memory in taken]
                self.solver.add(held[device] + z3.Sum(changes) <= capacity)

    def bound_by(self, late: Instance, early: Instance | None, ticks: int, rounds: int = 1) -> None:
        """Let `rounds` objectives be at least the ticks from one start, or 0, to so long after another."""
        self.terms.append((late, early, ticks, rounds))
        begin = 0 if early is None else self.start[early]
        self.solver.add(self.start[late] + ticks - begin <= rounds * self.objective)

    def value(self, starts: Mapping[Instance, int]) -> int:
        """Return the objective of some starts in ticks."""
        spans = (
            (starts[late] + ticks - (starts[early] if early else 0), n)
            for late, early, ticks, n in self.terms
        )
        return max((-(-span // rounds) for span, rounds in spans), default=0)

    def ask(self, limit: int, timeout_s: float) -> tuple[Verdict, dict[Instance, int]]:
        """Ask for starts with an objective of at most `limit`; UNKNOWN when time runs out.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        INTERRUPTS.raise_if_seen()
        self.budget.calls += 1
        self.solver.set("timeout", max(1, int(timeout_s * 1000)))
        self.solver.set("random_seed", self.budget.seed)
        self.solver.set("ctrl_c", False)
        self.solver.push()
        self.solver.add(self.objective <= limit)
        verdict = interruptible(self.solver.check, self.solver.interrupt)
        starts: dict[Instance, int] = {}
        if verdict == z3.sat:
            model = self.solver.model()
            starts = {
                instance: int(model.eval(start, model_completion=True).as_long())
                for instance, start in self.start.items()
            }
        self.solver.pop()
        if verdict == z3.unknown:
            return Verdict.UNKNOWN, {}
        return Verdict.YES if starts else Verdict.NO, starts

    @property
    def busiest_device(self) -> int:
        """Ticks of work of the device that has most."""
        by_name = self.placement.by_name
        return max(
            sum(ticks for (name, _), ticks in self.time.items() if device in by_name[name].devices)
            for device in range(self.placement.num_devices)
        )

    def share_a_device(self, a: Instance, b: Instance) -> bool:
        """Return whether two blocks have a device in common."""
        by_name = self.placement.by_name
        return not set(by_name[a[0]].devices).isdisjoint(by_name[b[0]].devices)


def repetend_query(placement: Placement, indices: Indices, budget: Budget) -> TesselQuery:
    """Return the query for the order of a repetend's blocks; the objective is the period, t_R of Eq. 4.

    On each device the next repetend begins after this one (E_R); and a block of a micro-batch `rounds` later
    than its input's gets it from so many repetends before (W_R).
    """
    query = TesselQuery(placement, indices.items(), memory_at_entry(placement, indices), budget)
    for first, last in itertools.product(query.start, repeat=2):
        if query.share_a_device(first, last):
            query.bound_by(last, first, query.time[last])
    for block in placement.blocks:
        for name in block.after:
            rounds = indices[name] - indices[block.name]
            if rounds > 0:
                ticks = placement.by_name[name].time + placement.transfer_time(name, block.name)
                query.bound_by((name, indices[name]), (block.name, indices[block.name]), ticks, rounds)
    return query


def phase_query(
    placement: Placement, instances: Iterable[Instance], held: Sequence[int], budget: Budget
) -> TesselQuery:
    """Return the query for the order of any set of blocks; the objective is their makespan (Eq. 1)."""
    query = TesselQuery(placement, instances, held, budget)
    for a, b in itertools.pairwise(sorted(query.start)):
        if a[0] == b[0]:  # each block runs its micro-batches in their order (Tessel, Property IV.1)
            query.solver.add(query.end[a] <= query.start[b])
    for instance, ticks in query.time.items():
        query.bound_by(instance, None, ticks)
    return query


@dataclass(frozen=True)
class Least:
    """The result of a binary search.

    Attributes:
        starts: Start of each block in ticks; None when none was found.
        value: Value of the objective, in ticks; 0 when none was found.
        bound: Ticks that the objective is proved to be at least.
        decided: Whether no smaller value, or none within the given limits, is proved.
    """

    starts: dict[Instance, int] | None
    value: int
    bound: int
    decided: bool


def minimise(
    query: TesselQuery,
    low: int,
    high: int,
    first_share: float = 0.5,
    on_step: Callable[[Least], None] = lambda _: None,
) -> Least:
    """Return the starts of the least objective within limits in ticks, or the best found until the deadline.

    Asks first whether there are any, with the first share of the time, then halves what is left (Tessel, Sec.
    V). Each question gets half of the time left, so that one that is too hard leaves time for easier ones.
    """
    least, lowest, candidate, share = Least(None, 0, low, low > high), low, high, first_share
    while lowest <= high and query.budget.left_s > 0:
        answer, starts = query.ask(candidate, query.budget.left_s * share)
        share = 0.5
        if answer is Verdict.YES:
            value = query.value(starts)
            high = value - 1
            least = Least(starts, value, least.bound, least.bound > high)
        else:
            lowest = candidate + 1
            bound = lowest if answer is Verdict.NO else least.bound
            least = Least(least.starts, least.value, bound, bound > high)
        on_step(least)
        candidate = (lowest + high) // 2
    return least
