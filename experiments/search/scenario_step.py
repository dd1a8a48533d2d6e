"""One order for several scenarios: after the search, and beside the schedules made by hand."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from pathlib import Path

from experiments.config.options import OptionError
from experiments.search.options import SearchCommandOptions
from placements import Placement
from placements.files import csv_text, write_text
from placements.forms.texts import read_yaml
from schedsearch.baselines import applicable
from schedsearch.core.answer import Answer
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.robust.robust_search import ROBUST, RobustResult, ScenarioRow, robust_search
from schedsearch.robust.scenarios import Scenario, scenarios_from
from schedsearch.schedule import Schedule, require_plain
from schedsearch.simulation.conditions import ConditionsError

log = logging.getLogger(__name__)


def read_scenarios(options: SearchCommandOptions, placement: Placement) -> tuple[Scenario, ...]:
    """Return the scenarios that the options name; none where they name none.

    Raises:
        OptionError: A scenario or an option beside them is wrong.
        PlacementError: The placement has modes or streams.
    """
    given, quantile = options.search.scenarios, options.search.scenario_quantile
    if quantile is not None and not 0 < quantile <= 1:
        raise OptionError(
            f"search.scenario_quantile: {quantile} is not above 0 and at most 1; give one, as 0.95, or null "
            "for the mean"
        )
    if given is None:
        if quantile is not None:
            raise OptionError("search.scenario_quantile: needs search.scenarios; give both, or leave it out")
        return ()
    require_plain(placement, "search.scenarios", "leave search.scenarios out")
    if isinstance(given, str):
        return scenarios_from(read_yaml(given, ConditionsError), f"{given}: scenarios", placement)
    return scenarios_from(given, "search.scenarios", placement)


def with_scenarios(
    options: SearchCommandOptions,
    scenarios: tuple[Scenario, ...],
    schedule: Schedule,
    result: Answer | None,
    limits: SharedLimits,
    directory: Path,
) -> tuple[Schedule, Answer | None]:
    """Return the order that is good in all scenarios; write ``scenarios.csv``, with others beside it.

    What the search proved stays true: its repetend and its bounds are of the placement's own times.
    """
    number = schedule.num_micro_batches
    name = "searched" if options.schedule == "searched" else options.schedule
    others = applicable(schedule.placement, number)
    found = robust_search(
        {name: schedule, **{other: each for other, each in others.items() if other != name}},
        scenarios,
        quantile=options.search.scenario_quantile,
        work_limit=min(limits.work, limits.seconds),  # a unit is about a second
        time_limit_s=limits.seconds,
        seed=options.search.seed,
    )
    columns = [field.name for field in fields(ScenarioRow)]
    rows = [[getattr(row, column) for column in columns] for row in found.rows]
    write_text(directory / "scenarios.csv", csv_text(columns, rows))
    log.info("%s", _in_words(found))
    if found.interrupted:
        log.info("scenarios: interrupted; this is the best order found so far")
    return found.schedule, None if result is None else replace(result, schedule=found.schedule)


def _in_words(found: RobustResult) -> str:
    """Return the mean of each schedule over all scenarios, best first, in a line."""
    means = sorted(found.mean_ms.items(), key=lambda each: (each[1], each[0] != ROBUST))
    listed = ", ".join(f"{name} {mean:.6g} ms" for name, mean in means)
    return f"scenarios: mean iteration of {listed}; bound {found.bound_ms:.6g} ms"
