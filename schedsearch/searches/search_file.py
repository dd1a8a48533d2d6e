"""The file form of an answer without its schedule: the key ``search`` of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from placements import Placement
from placements.forms.reading import Field, plain
from placements.modes import Chosen
from schedsearch.core.answer import Answer, InFlightPeriod, Status
from schedsearch.core.objective import Objective
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule
from schedsearch.state_space import MinPeriod


def repetend_to_dict(repetend: Repetend) -> dict[str, Any]:
    """Return where each block stands in a repetend."""
    return {
        "start": {name: list(ticks) for name, ticks in repetend.start.items()},
        "ahead": {name: list(rounds) for name, rounds in repetend.modulo_stage.items()},
        **modes_to_dict(repetend.placement, repetend.chosen),
    }


def modes_to_dict(placement: Placement, chosen: Sequence[Chosen]) -> dict[str, Any]:
    """Return for each decision the mode name of each micro-batch; empty without decisions."""
    if not placement.decisions:
        return {}
    names = [[decision.names[modes[i]] for modes in chosen] for i, decision in enumerate(placement.decisions)]
    return {"modes": names}


def modes_from_dict(data: Field, placement: Placement, num_micro_batches: int) -> tuple[Chosen, ...]:
    """Return for each micro-batch the choice of each decision, from the form of `modes_to_dict`."""
    if not placement.decisions:
        return ()
    rows = data["modes"].items("a list with the modes of each decision")
    if len(rows) != len(placement.decisions):
        raise data["modes"].wrong(f"{len(placement.decisions)} lists, one for each decision")
    columns = []
    for row, decision in zip(rows, placement.decisions, strict=True):
        names = row.items("a list with the mode of each micro-batch")
        if len(names) != num_micro_batches:
            raise row.wrong(f"{num_micro_batches} modes, one for each micro-batch")
        columns.append([decision.names.index(str(name.choice(decision.names))) for name in names])
    return tuple(zip(*columns, strict=True))


def repetend_from_dict(field: Field, placement: Placement, micro_batches: int, period: int) -> Repetend:
    """Return a repetend from its file form without checking its rules."""
    start, modulo_stage = (field[name].typed(Mapping[str, tuple[int, ...]]) for name in ("start", "ahead"))
    chosen = modes_from_dict(field, placement, micro_batches)
    return Repetend(placement.per_micro_batch, micro_batches, period, start, modulo_stage, chosen)


_FIELDS = (
    *("queries", "ended_by", "reason", "solver", "sizes", "span_bound", "universal_bound"),
    *("tried", "strategies"),
)
"""Fields of a result that a file has under their names, in ``search``."""


def search_to_dict(result: Answer) -> dict[str, Any]:
    """Return an answer's file form without its schedule, its repetend and their bounds."""
    by_in_flight = []
    for row in result.by_in_flight:
        repetend = {} if row.repetend is None else repetend_to_dict(row.repetend)
        period = None if row.repetend is None else row.repetend.period
        by_in_flight.append(
            {"in_flight": row.in_flight, "bound": row.bound, "seconds": row.seconds, "period": period}
            | repetend
        )
    fields = {name: plain(getattr(result, name)) for name in _FIELDS}
    fields |= {"limits": plain(result.limits), "min_period": plain(result.min_period)}
    return fields | {"by_in_flight": by_in_flight}


def search_from_dict(
    data: Field, schedule: Schedule | None, repetend: Repetend | None, placement: Placement | None
) -> Answer:
    """Build a result from the plain data of its whole file, given its schedule and repetend, if any."""
    search, types = data["search"], get_type_hints(Answer)
    limits = search["limits"]
    by_in_flight = []
    for row in search["by_in_flight"].items():
        best, period = None, whole_or_none(row["period"])
        if period is not None and placement is not None:
            best = repetend_from_dict(row, placement, 1, period)
        bounds = row["bound"].whole(), row["seconds"].number()
        by_in_flight.append(InFlightPeriod(row["in_flight"].whole(), best, *bounds))
    return Answer(
        data["search_status"].typed(Status),
        repetend,
        schedule,
        period_bound=data["period_bound"].number(),
        makespan_bound=data["makespan_bound"].whole(),
        device_span_bound=data["device_span_bound"].whole(),
        seconds=data["search_seconds"].number(),
        limits={name: limits[name].whole() for name in Objective if name in limits.mapping()},
        min_period=search["min_period"].typed(MinPeriod | None),
        by_in_flight=tuple(by_in_flight),
        **{name: search[name].typed(types[name]) for name in _FIELDS},
    )


def whole_or_none(field: Field) -> int | None:
    """Return a whole number, or None for null."""
    return None if field.value is None else field.whole()
