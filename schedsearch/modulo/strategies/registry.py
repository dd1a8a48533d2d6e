"""All strategies by name, and which of them a search uses."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from schedsearch.core.answer import SearchError
from schedsearch.procedures.annealing import Annealing
from schedsearch.procedures.beginnings import Greedy, HandMade
from schedsearch.procedures.modes import Modes
from schedsearch.procedures.procedure import Procedure
from schedsearch.procedures.queries import Queries, StatesStrategy

STRATEGIES: dict[str, type[Procedure]] = {kind.name: kind for kind in (HandMade, Greedy, Annealing, Modes)}
"""Strategies that find repetends, by name, in the order in which they run."""

OF_SCHEDULE = (
    "hand_made",
    "turns",
    "simulated",
    "samples",
    "neighbourhoods",
    Queries.name,
    StatesStrategy.name,
)
"""Names of what makes the whole schedule shorter; see `schedsearch.modulo.finite_schedule`."""

NAMES = tuple(dict.fromkeys((*STRATEGIES, Queries.name, StatesStrategy.name, *OF_SCHEDULE)))
"""What `search.strategies` and `search.without` may name."""


def chosen(
    strategies: Sequence[str | Procedure] | None, without: Collection[str] = ()
) -> tuple[list[Procedure], frozenset[str]]:
    """Return the strategies that a search uses, made anew, and the names of all that it uses.

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
    objects = [STRATEGIES[each]() if isinstance(each, str) and each in STRATEGIES else each for each in used]
    made = [each for each in objects if isinstance(each, Procedure)]
    return made, frozenset(map(_name_of, used))


def _name_of(strategy: str | Procedure) -> str:
    return strategy if isinstance(strategy, str) else strategy.name
