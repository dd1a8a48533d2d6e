"""The question to a search: placement, micro-batches, objectives and limits."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

from placements import Placement
from placements.modes import Chosen
from schedsearch.core.answer import Answer, SearchError
from schedsearch.core.objective import FINITE, Objective
from schedsearch.schedule import Schedule
from schedsearch.solver.portfolio import SOLVERS

BeginWith = Schedule | Answer
"""A start for a search: any schedule, or the answer of another search."""

GIVEN = "the given start"
"""Name of the given start in a search's progress, where procedures have their names."""

OBJECTIVES = (Objective.PERIOD, Objective.MAKESPAN)
"""Default objectives, in this order."""

TIME_LIMIT_S = 20.0
"""Default time limit of a search in seconds, if neither time nor work is limited."""

LONGEST_S = 4e6
"""Longest time limit, some forty days: solvers count milliseconds in 32 bits."""

_GREATEST_SEED = 1_000_000
"""Seeds of solvers have 31 bits, and improvement uses seeds from a thousand times this one on."""

_SEEDS_OF_WORKER = 7919
"""Difference between the seeds of two workers."""


@dataclass(frozen=True)
class Problem:
    """A question to a search: everything that the answer depends on, except the machine's speed.

    Attributes:
        placement: What runs where; its `memory` is the capacity.
        num_micro_batches: Micro-batches to unroll to; at least 1.
        chosen: Where micro-batches differ, the choice of each decision by each: with one decision its choices
            are the micro-batches. Empty where all are alike, or the search chooses. With it the last
            objective is that of a whole schedule, and of the other fields those count that limit the search,
            its seed and what it begins with.
        method: One of `schedsearch.searches.search.METHODS`. Tessel's repetends have one micro-batch, and
            its two methods make no use of the next three, nor of strategies and what to begin with.
        micro_batches_per_repetend: Exactly so many; None to try 1, 2, ... (Tessel: 1).
        max_micro_batches_per_repetend: Where to stop searching; above 1, the repetend of a hand-made schedule
            may be of more, up to the number of devices, where it is better.
        objectives: Objectives to minimise, in this order; see `schedsearch.core.objective.Objective`. The
            makespan or the device span can only be the last; one of them alone needs no period.
        solver: A key of `SOLVERS`.
        time_limit_s: Seconds for the whole search; the best schedule found until then is returned. Those that
            numba compiles, once after an installation, are not counted. None: `TIME_LIMIT_S`, or no limit
            where there is a limit of work.
        work_limit: Units of counted work after which to end, each of about a second on one core; None for
            no limit. A search that it ends has the same answer on any machine. Rounds end at 2.5,
            5, 10, 20, ... units: with such a limit, each objective has had its share.
        seed: Seed of the random choices, 0 to a million.
        begin_with: A schedule, or what another search found: the answer is then no worse than this one is
            with the options given here. See `schedsearch.passes.begin_with.starting_point_on`.
        strategies: Procedures to search with: names of `schedsearch.procedures.registry`, or objects of one's
            own, in the order in which they run; None for all.
        without: Names of procedures to leave out.
        workers: Processes that search side by side, this one among them; see `schedsearch.core.team`.
    """

    placement: Placement
    num_micro_batches: int
    chosen: tuple[Chosen, ...] = ()
    method: str = "modulo"
    micro_batches_per_repetend: int | None = None
    max_micro_batches_per_repetend: int = 3
    objectives: Sequence[str] = OBJECTIVES
    solver: str = "portfolio"
    time_limit_s: float | None = None
    work_limit: float | None = None
    seed: int = 0
    begin_with: BeginWith | None = None
    strategies: Sequence[Any] | None = None
    without: Collection[str] = ()
    workers: int = 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of micro-batches per repetend that are asked for."""
        if self.micro_batches_per_repetend is not None:
            return (self.micro_batches_per_repetend,)
        return tuple(range(1, self.max_micro_batches_per_repetend + 1))

    @property
    def wanted(self) -> tuple[Objective, ...]:
        """The objectives by their names.

        Raises:
            SearchError: One is unknown or there twice, the period is missing, or that of a whole schedule is
                not the last.
        """
        names, known = self.objectives, [objective.value for objective in Objective]
        if isinstance(names, str):
            raise SearchError(f"search.objectives: {names!r} is not a list; write [{names!r}]")
        for name in names:
            if name not in known:
                raise SearchError(f"search.objectives: {name!r} is not an objective; use {', '.join(known)}")
        wanted = tuple(Objective(name) for name in names)
        if len(set(wanted)) < len(wanted):
            raise SearchError("search.objectives: one is there twice; name each once")
        if Objective.PERIOD not in wanted and (len(wanted) != 1 or wanted[0] not in FINITE):
            raise SearchError(
                "search.objectives: the period is missing; add period, or give makespan or device_span alone"
            )
        for objective in FINITE:
            if objective in wanted[:-1]:
                raise SearchError(
                    f"search.objectives: the {objective} is not the last; nothing can be made less after it"
                )
        return wanted

    @property
    def of_batch(self) -> Objective:
        """The objective of one batch of micro-batches that differ.

        Raises:
            SearchError: It is that of a repetend.
        """
        last = self.wanted[-1]
        if last not in FINITE:
            raise SearchError(
                f"search.objectives: {last.value!r} is not for micro-batches that differ; let makespan or "
                "device_span be the last"
            )
        return last

    @property
    def seconds(self) -> float:
        """Time limit of the search in seconds."""
        return min(seconds_of(self.time_limit_s, self.work_limit), LONGEST_S)

    @property
    def of_helpers(self) -> list[Problem]:
        """The problem of each worker but the first, with a seed of its own."""
        seeds = (self.seed + worker * _SEEDS_OF_WORKER for worker in range(1, self.workers))
        return [replace(self, seed=seed % (_GREATEST_SEED + 1), workers=1) for seed in seeds]

    def check(self) -> None:
        """Check all fields except `begin_with`.

        Raises:
            SearchError: One is out of its range.
        """
        if not isinstance(self.placement, Placement):
            raise SearchError(
                f"placement: a {type(self.placement).__name__} is not a placement; give one, as v_shape or "
                "read_placement returns it"
            )
        assert self.wanted
        if self.chosen and len(self.chosen) != self.num_micro_batches:
            raise SearchError(
                f"search.num_micro_batches: {self.num_micro_batches} is not {len(self.chosen)}, for which "
                "something is chosen; leave it out"
            )
        if self.solver not in SOLVERS:
            raise SearchError(f"search.solver: {self.solver!r} is not a solver; use {' or '.join(SOLVERS)}")
        numbers = ("micro_batches_per_repetend", "max_micro_batches_per_repetend", "workers")
        for name in ("num_micro_batches", *numbers):
            number = getattr(self, name)
            if not isinstance(number, SupportsIndex) and (
                number is not None or name != "micro_batches_per_repetend"
            ):
                raise SearchError(f"search.{name}: {number!r} is not a whole number")
            if number is not None and int(number) < 1:
                raise SearchError(f"search.{name}: {number} is not at least 1")
        if not isinstance(self.seed, SupportsIndex) or not 0 <= self.seed <= _GREATEST_SEED:
            raise SearchError(f"search.seed: {self.seed!r} is not a whole number from 0 to {_GREATEST_SEED}")
        for name, unit in (("time_limit_s", "seconds"), ("work_limit", "units of work")):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise SearchError(f"search.{name}: {limit:.15g} is not a positive number of {unit}")


def seconds_of(time_limit_s: float | None, work_limit: float | None) -> float:
    """Return the time limit of a search in seconds; infinite with a work limit alone."""
    if time_limit_s is not None:
        return time_limit_s
    return TIME_LIMIT_S if work_limit is None else math.inf
