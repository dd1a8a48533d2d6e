"""The task of `experiments.prices`: the saving of a job that chooses among spot prices, and moves."""

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
from schedsearch.cluster.prices.price_files import CLOUDS, read_market, read_speeds
from schedsearch.cluster.prices.study import BASELINE, DYNAMIC, LADDER, MULTI_CLOUD, Reduction, Study, study

log = logging.getLogger(__name__)

SPEEDS = "throughputs.csv"
"""The file of a folder with the speeds of models."""


def task(options: PricesOptions) -> dict[str, float | str]:
    """Compute the saving of every strategy, write tables and figures, and return the largest reduction."""
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
    reductions = list(found.reductions(options.days, hindsight=options.hindsight))
    _say_what_is_compared(folder, options.clouds, found)
    _write(reductions)
    if DYNAMIC in found.strategies and options.durations:
        durations = found.reductions(options.durations)
        _write_durations([each for each in durations if each.strategy in (MULTI_CLOUD.name, DYNAMIC.name)])
    if under:
        _write_sweep(under, options.days[0])
    most = max(reductions, key=lambda each: each.reduction)
    largest = round(most.reduction, 4)
    return {"largest_reduction": largest, "of_model": most.model, "of_strategy": most.strategy}


def _conditions(options: PricesOptions) -> PriceConditions:
    """Return the conditions, and check all options."""
    require(bool(options.days), "days", [], "a list of at least one", "give lengths of jobs, as [4,8]")
    start_days, wanted = [*options.start_days], "two places, from and to"
    require(len(start_days) == 2, "start_days", start_days, wanted, "give them as [-35,-5]")
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
        *(found.baseline_gpu, len(found.starts), first, last),
    )
    if left_out := [each.name for each in LADDER if each not in found.strategies]:
        why = "azure.csv is missing" if "azure" in clouds else f"clouds={[*clouds]}"
        log.info("left out, because %s has prices of AWS alone (%s): %s", folder, why, ", ".join(left_out))


def _write(reductions: Sequence[Reduction]) -> None:
    from experiments.prices.drawings import save_reductions  # loads matplotlib

    directory = output_directory()
    path = write_text(directory / "reductions.csv", tables.reductions_csv(reductions))
    write_text(directory / "costs.csv", tables.costs_csv(reductions))
    save_reductions(reductions, directory / "reductions")
    log.info("%s", tables.to_table(reductions))
    log.info("table: %s", path)


def _write_durations(reductions: Sequence[Reduction]) -> None:
    """Write the saving of moving over staying, by the length of the job."""
    from experiments.prices.drawings import save_durations  # likewise

    write_text(output_directory() / "durations.csv", tables.reductions_csv(reductions))
    save_durations(reductions, output_directory() / "durations")


def _write_sweep(found: Sequence[Disturbed], days: float) -> None:
    """Write the part of the reductions left under restarts and preemptions."""
    from experiments.prices.drawings import save_disturbed  # likewise

    write_text(output_directory() / "disturbances.csv", tables.disturbances_csv(found))
    save_disturbed(found, output_directory() / "disturbances")
    log.info("%g days, geometric means over models against the undisturbed %s:", days, BASELINE.name)
    for line in tables.means_by_strategy(found):
        log.info("%s", line)
