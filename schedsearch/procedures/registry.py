"""All procedures by name, and which of them a search uses."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from schedsearch.core.answer import SearchError
from schedsearch.procedures.annealing import Annealing
from schedsearch.procedures.beginnings import BEGINNINGS, Greedy, HandMade
from schedsearch.procedures.modes import Modes
from schedsearch.procedures.neighbourhoods.improvement import NEIGHBOURHOODS
from schedsearch.procedures.procedure import Procedure
from schedsearch.procedures.queries import Queries, States
from schedsearch.procedures.samples import Samples

PROCEDURES: dict[str, type[Procedure]] = {kind.name: kind for kind in (HandMade, Greedy, Annealing, Modes)}
"""Procedures that find repetends, by name, in the order in which they run."""

OF_SCHEDULE = (*BEGINNINGS, Samples.name, NEIGHBOURHOODS, Queries.name, States.name)
"""Names of what makes the whole schedule shorter; see `schedsearch.procedures.whole`."""

NAMES = tuple(dict.fromkeys((*PROCEDURES, Queries.name, States.name, *OF_SCHEDULE)))
"""What `search.strategies` and `search.without` may name."""


def chosen(
    strategies: Sequence[str | Procedure] | None, without: Collection[str] = ()
) -> tuple[list[Procedure], frozenset[str]]:
    """Return the procedures that a search uses, made anew, and the names of all that it uses.

    Args:
        strategies: Names or objects, in the order in which they run; None for all.
        without: Names of those to leave out.

    Raises:
        SearchError: A name is unknown.
    """
    asked = NAMES if strategies is None else strategies
    for option, names in (("strategies", asked), ("without", without)):
        for each in names:
            if not isinstance(each, Procedure) and each not in NAMES:
                raise SearchError(
                    f"search.{option}: {each!r} is not a strategy; use some of {', '.join(NAMES)}"
                )
    used = [each for each in asked if _name_of(each) not in without]
    objects = [PROCEDURES[each]() if isinstance(each, str) and each in PROCEDURES else each for each in used]
    return [each for each in objects if isinstance(each, Procedure)], frozenset(map(_name_of, used))


def _name_of(procedure: str | Procedure) -> str:
    return procedure if isinstance(procedure, str) else procedure.name
