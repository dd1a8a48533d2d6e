"""The file form of what a search did and proved besides its schedule: the key ``search`` of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placements import Placement
from placements.modes import Chosen
from placements.plain_data import Field, plain
from schedsearch.core.answer import Attempt, EndedBy, InFlightPeriod, SearchResult, Status, StrategyWork
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
    """Return for each decision the name of what each micro-batch chose; nothing where nothing is decided."""
    if not placement.decisions:
        return {}
    names = [[decision.names[each[i]] for each in chosen] for i, decision in enumerate(placement.decisions)]
    return {"modes": names}


def modes_from_dict(data: Field, placement: Placement, num_micro_batches: int) -> tuple[Chosen, ...]:
    """Return for each micro-batch the choice of each decision, from what `modes_to_dict` wrote."""
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
        columns.append([decision.names.index(str(each.choice(decision.names))) for each in names])
    return tuple(zip(*columns, strict=True))


def repetend_from_dict(field: Field, placement: Placement, micro_batches: int, period: int) -> Repetend:
    """Return a repetend as it stands in a file, whether or not it is one."""
    start, modulo_stage = (_read_numbers(field[name]) for name in ("start", "ahead"))
    chosen = modes_from_dict(field, placement, micro_batches)
    return Repetend(placement.per_micro_batch, micro_batches, period, start, modulo_stage, chosen)


def search_to_dict(result: SearchResult) -> dict[str, Any]:
    """Return what a result tells besides its schedule, its repetend and their bounds."""
    return {
        "queries": result.queries,
        "ended_by": result.ended_by.value,
        "reason": result.reason,
        "solver": result.solver,
        "sizes": list(result.sizes),
        "limits": {str(objective): limit for objective, limit in result.limits.items()},
        "span_bound": result.span_bound,
        "universal_bound": result.universal_bound,
        "tried": plain(result.tried),
        "least_period": plain(result.min_period),
        "strategies": plain(result.strategies),
        "by_in_flight": [_in_flight_to_dict(each) for each in result.by_in_flight],
    }


def search_from_dict(
    data: Field, schedule: Schedule | None, repetend: Repetend | None, placement: Placement | None
) -> SearchResult:
    """Build a result from the plain data of its whole file.

    Args:
        data: Plain data with ``search``, ``search_status``, ``period_bound``, ``makespan_bound`` and
            ``search_seconds``.
        schedule: Schedule of the file; None for none.
        repetend: Likewise.
        placement: Placement of both.
    """
    search = data["search"]
    limits = search["limits"]
    return SearchResult(
        Status(data["search_status"].choice(tuple(Status))),
        repetend,
        schedule,
        period_bound=data["period_bound"].number(),
        span_bound=search["span_bound"].whole(),
        makespan_bound=data["makespan_bound"].whole(),
        device_span_bound=data["device_span_bound"].whole(),
        queries=search["queries"].whole(),
        seconds=data["search_seconds"].number(),
        tried=search["tried"].typed(tuple[Attempt, ...], {}),
        ended_by=EndedBy(search["ended_by"].choice(tuple(EndedBy))),
        reason=str(search["reason"].value),
        sizes=search["sizes"].whole_numbers(),
        limits={each: limits[each].whole() for each in Objective if each in limits.mapping()},
        solver=str(search["solver"].value),
        min_period=search["least_period"].typed(MinPeriod | None, {}),
        strategies=search["strategies"].typed(
            tuple[StrategyWork, ...], {Objective: {each.value: each for each in Objective}}
        ),
        universal_bound=search["universal_bound"].number(),
        by_in_flight=tuple(_read_in_flight(each, placement) for each in search["by_in_flight"].items()),
    )


def whole_or_none(field: Field) -> int | None:
    """Return a whole number, or None for null."""
    return None if field.value is None else field.whole()


def _in_flight_to_dict(found: InFlightPeriod) -> dict[str, Any]:
    repetend = found.repetend
    row: Mapping[str, Any] = {"period": None}
    if repetend is not None:
        row = {"period": repetend.period, **repetend_to_dict(repetend)}
    return {"in_flight": found.in_flight, "bound": found.bound, "seconds": found.seconds, **row}


def _read_in_flight(row: Field, placement: Placement | None) -> InFlightPeriod:
    period = whole_or_none(row["period"])
    repetend = None
    if period is not None and placement is not None:
        repetend = repetend_from_dict(row, placement, 1, period)
    return InFlightPeriod(row["in_flight"].whole(), repetend, row["bound"].whole(), row["seconds"].number())


def _read_numbers(field: Field) -> dict[str, tuple[int, ...]]:
    return {name: field[name].whole_numbers() for name in field.mapping("a mapping of each block to a list")}
