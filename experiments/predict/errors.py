"""How far predictions are off, and whether they rank plans as the measurements do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from experiments.predict.prediction import PlanPrediction


@dataclass(frozen=True)
class Errors:
    """The errors of some predictions, as shares of what was measured.

    Attributes:
        errors: Above 0 where too high; shape ``(num_plans,)``.
        what: Noun for a prediction's subject, such as "plan".
    """

    errors: tuple[float, ...]
    what: str = "plan"

    @classmethod
    def of(cls, errors: Iterable[float | None], what: str = "plan") -> Errors:
        """Return those that are known."""
        return cls(tuple(error for error in errors if error is not None), what)

    @property
    def mean_absolute(self) -> float:
        """The mean of their sizes."""
        return sum(map(abs, self.errors)) / len(self.errors)

    @property
    def worst(self) -> float:
        """The largest of their sizes."""
        return max(map(abs, self.errors))

    @property
    def mean(self) -> float:
        """Their mean: what all have in common."""
        return sum(self.errors) / len(self.errors)

    def __str__(self) -> str:
        """Return both in a line."""
        if not self.errors:
            return "nothing to compare"
        count = f"{len(self.errors)} {self.what}{'s' if len(self.errors) > 1 else ''}"
        shown = f"mean absolute error {self.mean_absolute:.1%}, mean error {self.mean:+.1%}"
        return f"{shown}, worst {self.worst:.1%}, of {count}"


def counted(predictions: Iterable[PlanPrediction]) -> list[PlanPrediction]:
    """Return the predictions of plans that have no note in their table."""
    return [each for each in predictions if not each.measured.note]


def rankings(predictions: Iterable[PlanPrediction]) -> Iterator[str]:
    """Yield a line for each number of GPUs: whether plans come in the order of their measured times."""
    by_gpus: dict[int, list[tuple[float, float, str]]] = {}
    for each in predictions:
        if each.predicted_s is not None and each.measured.measured_s is not None:
            row = (each.measured.measured_s, each.predicted_s, each.measured.name)
            by_gpus.setdefault(each.measured.plan.num_gpus, []).append(row)
    for num_gpus, rows in sorted(by_gpus.items()):
        yield f"{num_gpus} GPU{'s' if num_gpus > 1 else ''}: {_ranking(sorted(rows))}"


def _ranking(rows: Sequence[tuple[float, float, str]]) -> str:
    """Return whether plans in the order of their measured times are in that of the predicted ones."""
    if len(rows) == 1:
        return "1 plan"
    wrong = [
        f"{later} is predicted before {earlier}"
        for (_, predicted, earlier), (_, next_predicted, later) in combinations(rows, 2)
        if next_predicted < predicted
    ]
    return f"{len(rows)} plans, {'; '.join(wrong) if wrong else 'in the order of the measurements'}"
