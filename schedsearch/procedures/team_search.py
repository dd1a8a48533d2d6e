"""The answers of workers that search side by side: told while they search, and the best in the end."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from schedsearch.core.answer import Answer, EndedBy, SearchProgress, SearchReport, Status
from schedsearch.core.objective import FINITE, VALUE, Objective


def objective_value(answer: Answer, objective: Objective) -> float:
    """Return an objective's value of an answer, of the period per micro-batch; else infinity."""
    if answer.schedule is None:
        return math.inf
    if objective in FINITE:
        return FINITE[objective].value(answer.schedule)
    if answer.repetend is None:
        return math.inf
    if objective is Objective.PERIOD:
        return answer.repetend.period_per_micro_batch
    return VALUE[objective](answer.repetend)


def bound_of(answer: Answer, objective: Objective) -> float:
    """Return the lower bound of an answer on the period or the objective of a whole schedule; else 0."""
    bounds = {
        Objective.PERIOD: answer.period_bound,
        Objective.MAKESPAN: answer.makespan_bound,
        Objective.DEVICE_SPAN: answer.device_span_bound,
    }
    return bounds.get(objective, 0)


def best_of(first: Answer, others: Iterable[Answer], wanted: Sequence[Objective]) -> Answer:
    """Return the best answer of a team, with the highest bounds; of equal answers the first.

    Without objectives before the period the shortest schedule may be another worker's than the repetend.
    """
    answers = [first, *others]
    if impossible := [answer for answer in answers if answer.status is Status.INFEASIBLE]:
        return impossible[0]
    best = min(answers, key=lambda answer: [objective_value(answer, objective) for objective in wanted])
    if best.schedule is None:
        return first
    if wanted[-1] in FINITE and wanted[0] in (Objective.PERIOD, *FINITE):
        shortest = min(answers, key=lambda answer: objective_value(answer, wanted[-1]))
        best = replace(best, schedule=shortest.schedule)
    names = ("period_bound", "universal_bound", "makespan_bound", "device_span_bound")
    best = replace(
        best,
        **{name: max(getattr(answer, name) for answer in answers) for name in names},
        queries=sum(answer.queries for answer in answers),
        **{name: getattr(first, name) for name in ("seconds", "work", "strategies", "ended_by")},
    )
    meets = {name for name in wanted if objective_value(best, name) <= bound_of(best, name)}
    proves = (Objective.PERIOD if Objective.PERIOD in wanted else wanted[-1]) in meets
    if first.interrupted or not proves:
        return replace(best, status=Status.FEASIBLE)
    ended_by = EndedBy.PROOF if meets == {*wanted} else first.ended_by
    return replace(best, status=Status.OPTIMAL, ended_by=ended_by)


class TeamProgress:
    """A listener that is told the best value and bound of all workers, never a worse one than before."""

    def __init__(self, on_progress: SearchReport) -> None:
        """Pass all on to a listener."""
        self._on_progress, self._best = on_progress, dict[str, SearchProgress]()

    def __call__(self, progress: SearchProgress) -> None:
        """Pass on the progress of the leader, or with the better value of a helper."""
        if (before := self._best.get(progress.phase)) is not None:
            progress = replace(progress, bound=max(before.bound, progress.bound))
            if before.best is not None and (progress.best is None or before.best <= progress.best):
                progress = replace(progress, best=before.best, found_by=before.found_by)
        self._best[progress.phase] = progress
        self._on_progress(progress)

    def of_helpers(self, answers: Sequence[Answer], objectives: Iterable[Objective], began: float) -> None:
        """Tell where a helper is better than all that was told; `began` is of `time.monotonic`."""
        for objective in {Objective.PERIOD, *FINITE} & {*objectives}:
            for number, answer in enumerate(answers, 2):
                value, before = objective_value(answer, objective), self._best.get(objective)
                if value < (math.inf if before is None or before.best is None else before.best):
                    seconds, name = time.monotonic() - began, f"worker {number}"
                    self(SearchProgress(objective, value, bound_of(answer, objective), 0, seconds, name))
