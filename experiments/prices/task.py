"""The task of `experiments.prices`: what a job saves by choosing among spot prices, and by moving."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments.config.options import require, require_known, require_once, require_path
from experiments.config.run_record import output_directory
from experiments.prices import tables
from experiments.prices.disturbances import Disturbed, disturbed
from experiments.prices.options import PricesOptions
from placements.forms.texts import write_text
from schedsearch.cluster.prices.days import PriceConditions
from schedsearch.cluster.prices.market import Market
from schedsearch.cluster.prices.price_files import CLOUDS, read_market, read_speeds
from schedsearch.cluster.prices.study import BASELINE, DYNAMIC, LADDER, MULTI_CLOUD, Reduction, Study, study

log = logging.getLogger(__name__)

SPEEDS = "throughputs.csv"
"""The file of a folder with the speeds of models."""


def task(options: PricesOptions) -> dict[str, float | str]:
    """Compute what every strategy saves, write tables and figures, and return the largest reduction."""
    conditions = _conditions(options)
    folder = Path(require_path("data", options.data))
    market, speeds = read_market(folder, options.clouds), read_speeds(folder / SPEEDS)
    for model in options.models:
        require_known("models", model, speeds)
    speeds = {model: speeds[model] for model in options.models or speeds}
    starts = (options.start_days[0], options.start_days[1])
    study_of = partial(study, market, speeds, baseline_gpu=options.baseline_gpu, starts=starts)
    found = study_of(conditions)
    sweep = options.sweep_restart_s, options.sweep_preemptions_per_day
    under = list(disturbed(study_of, conditions, *sweep, options.days[0]))
    directory = output_directory()
    _say_what_is_compared(folder, options.clouds, found)
    reductions = list(found.reductions(options.days, hindsight=options.hindsight))
    _write(reductions, market, directory)
    if DYNAMIC in found.strategies and options.durations:
        _write_durations(found, options.durations, directory)
    if under:
        _write_sweep(under, options.days[0], directory)
    most = max(reductions, key=lambda each: each.reduction)
    return {
        "largest_reduction": round(most.reduction, 4),
        "of_model": most.model,
        "of_strategy": most.strategy,
    }


def _conditions(options: PricesOptions) -> PriceConditions:
    """Return the conditions, and check all options."""
    require(bool(options.days), "days", [], "a list of at least one", "give lengths of jobs, as [4,8]")
    require(
        len(options.start_days) == 2,
        "start_days",
        list(options.start_days),
        "two places, from and to",
        "give them as [-35,-5]",
    )
    for cloud in options.clouds:
        require_known("clouds", cloud, CLOUDS)
    require("aws" in options.clouds, "clouds", list(options.clouds), "with aws, of which the baseline is")
    for name in ("models", "clouds", "days", "durations", "sweep_restart_s", "sweep_preemptions_per_day"):
        require_once(name, list(getattr(options, name)))
    return PriceConditions(**{name: getattr(options, name) for name in PriceConditions.__dataclass_fields__})


def _say_what_is_compared(folder: Path, clouds: Sequence[str], found: Study) -> None:
    first, last = found.first_and_last_start
    log.info(
        "cost reduction: mean cost of the baseline, the cheapest zone of AWS with one %s, divided by the "
        "mean cost of the strategy; %d start days, %s to %s",
        found.baseline_gpu,
        len(found.starts),
        first,
        last,
    )
    if left_out := [each.name for each in LADDER if each not in found.strategies]:
        why = "azure.csv is missing" if "azure" in clouds else f"clouds={[*clouds]}"
        log.info("left out, because %s has prices of AWS alone (%s): %s", folder, why, ", ".join(left_out))


def _write(reductions: Sequence[Reduction], market: Market, directory: Path) -> None:
    from experiments.prices import drawings  # loads matplotlib

    path = write_text(directory / "reductions.csv", tables.reductions_csv(reductions))
    write_text(directory / "costs.csv", tables.costs_csv(reductions))
    write_text(directory / "hourly_prices.csv", tables.hourly_prices_csv(market))
    drawings.save_reductions(reductions, directory / "reductions")
    drawings.save_prices(market, directory / "prices")
    log.info("%s", tables.to_table(reductions))
    log.info("table: %s", path)


def _write_durations(found: Study, durations: Sequence[float], directory: Path) -> None:
    """Write what moving saves over staying, by the length of the job."""
    from experiments.prices import drawings  # likewise

    both = [each for each in found.reductions(durations) if each.strategy in (MULTI_CLOUD.name, DYNAMIC.name)]
    write_text(directory / "durations.csv", tables.reductions_csv(both))
    drawings.save_durations(both, directory / "durations")


def _write_sweep(found: Sequence[Disturbed], days: float, directory: Path) -> None:
    """Write what is left of the reductions under restarts and preemptions."""
    from experiments.prices import drawings  # likewise

    write_text(directory / "disturbances.csv", tables.disturbances_csv(found))
    drawings.save_disturbed(found, directory / "disturbances")
    log.info("%g days, geometric means over models against the undisturbed %s:", days, BASELINE.name)
    for line in tables.means_by_strategy(found):
        log.info("%s", line)
