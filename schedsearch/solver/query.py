"""A search's query to a solver (is there a repetend of a period?), and the solver's answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from placements import Placement
from schedsearch.model import rules
from schedsearch.model.variables import Model, PeriodicVariables, Term
from schedsearch.repetend import Repetend
from schedsearch.solver.budget import SolverBudget


class Verdict(Enum):
    """A solver's answer to a query; UNKNOWN means that it gave up, never that no repetend exists."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Query:
    """A query: is there a repetend of this period within these limits?

    Attributes:
        placement: What runs where, without optimizer blocks; its capacities count.
        micro_batches: Micro-batches per repetend.
        period: Ticks.
        span: Longest time from first start to last end of one round's micro-batches, in ticks; None for any.
        latency: Longest time from first start to last end of each single micro-batch; None for any.
    """

    placement: Placement
    micro_batches: int
    period: int
    span: int | None = None
    latency: int | None = None


Decision = tuple[Verdict, Repetend | None]
"""A verdict, with the repetend if it is YES."""


class Solver(Protocol):
    """Decides whether a repetend exists, or says UNKNOWN when its budget is spent.

    A Ctrl-C raises KeyboardInterrupt.
    """

    def __call__(self, query: Query, budget: SolverBudget = ...) -> Decision:
        """Return the answer."""


def has_room(query: Query) -> bool:
    """Return whether each block fits into the period: one that does not would run into itself."""
    names = [block.name for block in query.placement.blocks]
    return all(
        min(block.time for block in query.placement.alternatives(name)) <= query.period for name in names
    )


def write_query(query: Query, model: Model, last_round: int | None = None) -> PeriodicVariables:
    """Write a query into a solver's model: one decides a period over all repetends at once.

    Tessel enumerates which micro-batch each block of the repetend belongs to, and asks Z3 for the best order
    of each candidate (Tessel, Sec. IV-B, Alg. 1). No block need be in a later round than `last_round`; it is
    None for a solver that such consequences of the rules slow down.
    """
    instances = [(block.name, n) for block in query.placement.blocks for n in range(query.micro_batches)]
    round_ = {i: model.new_int_var(0, last_round, f"round {i}") for i in instances}
    start = {i: model.new_int_var(0, query.period - 1, f"start {i}") for i in instances}
    v = PeriodicVariables(
        model, query.placement, start, round_, query.period, query.micro_batches, last_round
    )
    devices = range(query.placement.num_devices)
    if last_round is not None:
        rules.start_at_heads(v)
    rules.fit_into_period(v)
    for rule in rules.RULES:
        rule(v)
    for lane in range(len(query.placement.lanes)):
        rules.run_one_at_a_time(v, lane)
    for device in devices:
        rules.respect_memory(v, device)
    rules.order_micro_batches(v)
    rules.limit_span(v, query.span)
    if query.latency is not None:
        rules.limit_latency(v, query.latency)
    return v


def repetend_of(query: Query, v: PeriodicVariables, value: Callable[[Term], int]) -> Repetend:
    """Return the repetend of a solver's answer, which tells the value of each variable."""
    numbers = range(len(query.placement.decisions))
    chosen = tuple(
        tuple(next(k for k, literal in enumerate(v.choices[i, n]) if value(literal)) for i in numbers)
        for n in range(query.micro_batches if numbers else 0)
    )
    as_run = [query.placement.as_run(modes).by_name for modes in chosen]
    first = {
        (name, n): value(v.round[name, n]) * query.period + value(v.start[name, n])
        for name, n in v.start
        if not as_run or name in as_run[n]
    }
    return Repetend.from_first_starts(query.placement, query.micro_batches, query.period, first, chosen)
