"""The best answers known: their figures in ``best_known.csv``, the answers themselves in ``answers``.

All that is kept was rebuilt from its written form and passed `validate`: a repetend as a schedule of its own
period, a schedule from the orders of its devices. Bounds are what a search proved; they are not proved again.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from experiments.benchmarks.instances.instance_file import FOLDER, Instance
from placements import Placement
from placements.forms.tables import Row, csv_rows
from placements.forms.texts import csv_text, write_bytes, write_text
from schedsearch.device_span import device_spans, with_least_device_span
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.load_and_path import load_bound
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance as BlockInstance
from schedsearch.schedule import Schedule, as_soon_as_possible
from schedsearch.validate import InvalidScheduleError, validate

FIGURES = ("period", "makespan", "device_span")
"""Objectives, each on its own: ticks per micro-batch, and ticks of a whole schedule."""

_COLUMNS = (
    *("instance", "micro_batches", "best_period", "period_bound", "best_makespan", "makespan_bound"),
    *("best_device_span", "device_span_bound", "status", "found_by", "seconds", "version"),
)


class AnswerError(ValueError):
    """A stored or offered answer is wrong; the message names the instance, the figure and the remedy."""


@dataclass(frozen=True)
class BestKnown:
    """A row of ``best_known.csv``.

    Attributes:
        micro_batches: Micro-batches of the whole schedules.
        best: Least known value of each figure; a device span is not always of the schedule of the best
            makespan.
        bound: Lower bound of each figure; for the period, of any number of micro-batches per repetend.
        found_by: Search or rule that found each figure, in their order, with ``/`` between.
        seconds: Wall-clock time of the search that last made a figure better.
        version: Version of that search.
    """

    micro_batches: int
    best: Mapping[str, Fraction]
    bound: Mapping[str, Fraction]
    found_by: str = "-/-/-"
    seconds: float = 0.0
    version: str = ""

    @classmethod
    def of_row(cls, row: Row) -> BestKnown:
        """Return the answer of a row."""
        return cls(
            row["micro_batches"].whole(),
            {name: Fraction(row.text(f"best_{name}")) for name in FIGURES if f"best_{name}" in row},
            {name: Fraction(row.text(f"{name}_bound")) for name in FIGURES},
            row.text("found_by"),
            row["seconds"].number(),
            row.cells.get("version", ""),
        )

    def row(self, instance: str) -> list[Any]:
        """Return the cells of its row."""
        figures = [value for name in FIGURES for value in (self.best.get(name), self.bound[name])]
        end = [self.status, self.found_by, self.seconds, self.version]
        return [instance, self.micro_batches, *figures, *end]

    @property
    def status(self) -> str:
        """OPTIMAL where period and makespan meet their bounds, FEASIBLE where one is known, else UNKNOWN."""
        if all(self.best.get(name) == self.bound[name] for name in ("period", "makespan")):
            return "OPTIMAL"
        return "FEASIBLE" if {"period", "makespan"} & self.best.keys() else "UNKNOWN"


def orders_as_text(schedule: Schedule) -> list[str]:
    """Return for each device its blocks in order: names, which count their micro-batches from 0 on.

    Where a block is not of the micro-batch after that of the same block before, ``@`` and the number follow.

    >>> from placements.shapes import v_shape
    >>> from schedsearch.baselines import one_f_one_b
    >>> orders_as_text(one_f_one_b(v_shape(2), 3))
    ['F0 F0 B0 F0 B0 B0', 'F1 B1 F1 B1 F1 B1']
    """
    texts = []
    for device in range(schedule.placement.num_devices):
        following: dict[str, int] = {}
        words = []
        for name, n in schedule.order(device):
            words.append(name if following.get(name, 0) == n else f"{name}@{n}")
            following[name] = n + 1
        texts.append(" ".join(words))
    return texts


def orders_from_text(texts: Iterable[str]) -> list[list[BlockInstance]]:
    """Return the orders that `orders_as_text` wrote."""
    orders = []
    for text in texts:
        following: dict[str, int] = {}
        order = []
        for word in text.split():
            name, _, number = word.partition("@")
            n = int(number) if number else following.get(name, 0)
            following[name] = n + 1
            order.append((name, n))
        orders.append(order)
    return orders


def rebuilt(instance: Instance, figure: str, answer: Mapping[str, Any]) -> Fraction:
    """Return the figure of a stored answer, rebuilt from its file and validated.

    Raises:
        AnswerError: It breaks a rule of the instance.
    """
    try:
        if figure == "period":
            return _repetend_value(instance.placement, answer)
        orders = orders_from_text(answer["orders"])
        schedule = validate(as_soon_as_possible(instance.placement, instance.num_micro_batches, orders))
        if figure == "makespan":
            return Fraction(schedule.makespan)
        return Fraction(int(device_spans(validate(with_least_device_span(schedule))).max()))
    except (KeyError, ValueError) as error:
        text = error.reason if isinstance(error, InvalidScheduleError) else error
        raise AnswerError(f"{instance.name}: {figure}: the answer is wrong: {text}; remove it") from None


def _repetend_value(placement: Placement, answer: Mapping[str, Any]) -> Fraction:
    first = {
        (name, n): start for name, starts in answer["first_starts"].items() for n, start in enumerate(starts)
    }
    size, period = int(answer["micro_batches"]), int(answer["period"])
    if set(answer["first_starts"]) != set(placement.by_name) or len(first) != size * len(placement.blocks):
        raise AnswerError("not every block has a start for each micro-batch")
    repetend = Repetend.from_first_starts(placement, size, period, first)
    validate(repetend.at_initiation_interval((repetend.in_flight + 1) * size))  # all rounds meet in it
    return Fraction(period, size)


def _written(found: Repetend | Schedule) -> dict[str, Any]:
    """Return an answer as it is stored."""
    if isinstance(found, Schedule):
        return {"orders": orders_as_text(found)}
    starts = {name: [found.first_starts[name, n] for n in range(found.micro_batches)] for name in found.start}
    return {"micro_batches": found.micro_batches, "period": found.period, "first_starts": starts}


class Library:
    """The best answers of a folder, read when they are needed and written whenever one is better.

    Attributes:
        best: By the name of the instance.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._groups: dict[str, dict[str, Any]] = {}
        self.best: dict[str, BestKnown] = {}
        path = folder / "best_known.csv"
        if path.exists():
            for row in csv_rows(path, "instance", AnswerError, _COLUMNS):
                try:
                    self.best[row.text("instance")] = BestKnown.of_row(row)
                except ValueError as error:
                    raise AnswerError(
                        f"{path}: line {row.line}: is wrong ({error}); measure it anew"
                    ) from None

    def answers(self, group: str) -> dict[str, Any]:
        """Return the stored answers of a group: by instance, then by figure."""
        if group not in self._groups:
            path = self._path(group)
            stored = json.loads(gzip.decompress(path.read_bytes())) if path.exists() else {}
            for each in stored.values():
                if "device_span" in each:  # its orders are left out where they are those of the makespan
                    each["device_span"].setdefault("orders", each.get("makespan", {}).get("orders"))
            self._groups[group] = stored
        return self._groups[group]

    def known(self, instance: Instance) -> BestKnown:
        """Return the best answers to an instance."""
        load, number = load_bound(instance.placement), instance.num_micro_batches
        bounds = (load, number * load, device_span_bound(instance.placement, number))
        nothing = BestKnown(number, {}, dict(zip(FIGURES, map(Fraction, bounds), strict=True)))
        return self.best.get(instance.name, nothing)

    def offer(
        self,
        instance: Instance,
        candidates: Sequence[Repetend | Schedule],
        bound: Mapping[str, Fraction],
        seconds: float,
        version: str,
    ) -> list[str]:
        """Keep and write the answers of a search that are better than the known ones; return their figures.

        Args:
            instance: The instance that was searched.
            candidates: Repetends for the period, and whole schedules, each of which may be the best by one
                figure.
            bound: Proved lower bounds of some figures, as in `BestKnown`.
            seconds: Wall-clock time of the search.
            version: Version of the search.

        Raises:
            AnswerError: An answer breaks a rule, or is better than a bound.
        """
        known = self.known(instance)
        answers = dict(self.answers(instance.group).get(instance.name, {}))
        best, bounds, finders = dict(known.best), dict(known.bound), known.found_by.split("/")
        better = []
        for i, figure in enumerate(FIGURES):
            for candidate in candidates:
                if isinstance(candidate, Repetend) != (figure == "period"):
                    continue
                answer = _written(candidate)
                value = rebuilt(instance, figure, answer)
                if figure not in best or value < best[figure]:
                    answers[figure], finders[i], best[figure] = answer, "search", value
                    better.append(figure)
            bounds[figure] = max(bounds[figure], bound.get(figure, Fraction(0)))
            if figure in best and best[figure] < bounds[figure]:
                raise AnswerError(
                    f"{instance.name}: {figure}: {best[figure]} is below the bound, {bounds[figure]}; "
                    "one of them is wrong"
                )
        now = replace(known, best=best, bound=bounds, found_by="/".join(finders))
        if better:
            now = replace(now, seconds=seconds, version=version)
        if now != known:
            self.best[instance.name] = now
            self.answers(instance.group)[instance.name] = answers
            self._write(instance.group)
        return list(dict.fromkeys(better))

    def check(self, instance: Instance) -> None:
        """Rebuild the answers of an instance, and compare them with the row.

        Raises:
            AnswerError: One is missing, is wrong, or reaches another value than the row says.
        """
        known, answers = self.known(instance), self.answers(instance.group).get(instance.name, {})
        if known.micro_batches != instance.num_micro_batches:
            raise AnswerError(
                f"{instance.name}: micro_batches: is {known.micro_batches} in best_known.csv and "
                f"{instance.num_micro_batches} in the instance; give the instance another name"
            )
        for figure in FIGURES:
            value = rebuilt(instance, figure, answers[figure]) if figure in answers else None
            if value != known.best.get(figure):
                raise AnswerError(
                    f"{instance.name}: {figure}: the stored answer reaches {value}, and best_known.csv says "
                    f"{known.best.get(figure)}; write what is reached"
                )
            if value is not None and value < known.bound[figure]:
                raise AnswerError(f"{instance.name}: {figure}: {value} is below its bound; one is wrong")

    def _path(self, group: str) -> Path:
        return self._folder / "answers" / f"{group}.json.gz"

    def _write(self, group: str) -> None:
        """Write the answers of a group first: a row says no more than they do if this is interrupted."""
        stored = {}
        for name, answers in sorted(self.answers(group).items()):
            span = answers.get("device_span")
            if span and span["orders"] == answers.get("makespan", {}).get("orders"):
                answers = answers | {"device_span": {}}
            stored[name] = answers
        text = json.dumps(stored, separators=(",", ":"))
        write_bytes(self._path(group), gzip.compress(text.encode(), mtime=0))
        rows = (known.row(name) for name, known in sorted(self.best.items()))
        write_text(self._folder / "best_known.csv", csv_text(_COLUMNS, rows))
