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

PROCEDURES: dict[str, type[Procedure]] = {kind.name: kind for kind in (HandMade, Greedy, Annealing, Modes)}
"""Procedures that find repetends, by name, in the order in which they run."""

NAMES = tuple(dict.fromkeys((*PROCEDURES, Queries.name, States.name, *BEGINNINGS, NEIGHBOURHOODS)))
"""Names that `search.strategies` and `search.without` accept; some are for the whole schedule."""


def chosen(
    strategies: Sequence[str | Procedure] | None, without: Collection[str] = ()
) -> tuple[list[Procedure], frozenset[str]]:
    """Return new objects of a search's procedures, and the names of all strategies in use.

    Args:
        strategies: Names or objects, in the order in which they run; None for all.
        without: Names of strategies to leave out.

    Raises:
        SearchError: A name is unknown.
    """
    asked = NAMES if strategies is None else strategies
    for option, names in (("strategies", asked), ("without", without)):
        for name in names:
            if not isinstance(name, Procedure) and name not in NAMES:
                raise SearchError(
                    f"search.{option}: {name!r} is not a strategy; use some of {', '.join(NAMES)}"
                )
    named = {strategy if isinstance(strategy, str) else strategy.name: strategy for strategy in asked}
    used = {name: strategy for name, strategy in named.items() if name not in without}
    made = [
        PROCEDURES[name]() if strategy == name and name in PROCEDURES else strategy
        for name, strategy in used.items()
    ]
    return [procedure for procedure in made if isinstance(procedure, Procedure)], frozenset(used)
