"""One order for several scenarios: after the search, and beside the schedules made by hand."""

from __future__ import annotations

import logging

from experiments.config.options import OptionError
from experiments.search.options import SearchCommandOptions
from placements import Placement
from placements.forms.texts import read_yaml
from schedsearch.baselines import applicable
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.robust.robust_search import ROBUST, RobustResult, robust_search
from schedsearch.robust.scenarios import Scenario, scenarios_from
from schedsearch.schedule import Schedule, require_plain
from schedsearch.simulation.conditions import ConditionsError

log = logging.getLogger(__name__)


def read_scenarios(options: SearchCommandOptions, placement: Placement) -> tuple[Scenario, ...]:
    """Return the scenarios that the options name; none where they name none.

    Raises:
        OptionError: There is a quantile without scenarios.
        ConditionsError: A scenario is wrong.
        PlacementError: The placement has modes or streams.
    """
    given = options.search.scenarios
    if given is None:
        if options.search.scenario_quantile is not None:
            raise OptionError("search.scenario_quantile: needs search.scenarios; give both, or leave it out")
        return ()
    require_plain(placement, "search.scenarios", "leave search.scenarios out")
    if isinstance(given, str):
        return scenarios_from(read_yaml(given, ConditionsError), f"{given}: scenarios", placement)
    return scenarios_from(given, "search.scenarios", placement)


def robust_order(
    options: SearchCommandOptions, scenarios: tuple[Scenario, ...], schedule: Schedule, limits: SharedLimits
) -> RobustResult:
    """Return the order that is good in all scenarios, with a schedule and those made by hand beside it."""
    others = applicable(schedule.placement, schedule.num_micro_batches)
    result = robust_search(
        {options.schedule: schedule}
        | {name: made for name, made in others.items() if name != options.schedule},
        scenarios,
        quantile=options.search.scenario_quantile,
        work_limit=min(limits.work, limits.seconds),  # a unit is about a second
        time_limit_s=limits.seconds,
        seed=options.search.seed,
    )
    means = sorted(result.mean_ms.items(), key=lambda named: (named[1], named[0] != ROBUST))
    listed = ", ".join(f"{name} {mean:.6g} ms" for name, mean in means)
    log.info("scenarios: mean iteration of %s; bound %.6g ms", listed, result.bound_ms)
    if result.interrupted:
        log.info("scenarios: interrupted; this is the best order found so far")
    return result
