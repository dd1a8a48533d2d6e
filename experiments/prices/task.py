"""The task of `experiments.prices`: the saving of a job that chooses among spot prices, and moves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from experiments.config.options import require, require_known, require_once, require_path
from experiments.prices.options import PricesOptions
from experiments.report.result import Result, Table
from placements.forms.texts import text_columns
from schedsearch.cluster.prices.days import PriceConditions
from schedsearch.cluster.prices.price_files import CLOUDS, read_market, read_speeds
from schedsearch.cluster.prices.study import DYNAMIC, LADDER, MULTI_CLOUD, Reduction, Study

SPEEDS = "throughputs.csv"
"""The file of a folder with the speeds of models."""


def task(options: PricesOptions) -> Result:
    """Compute the saving of every strategy; the figure is the largest reduction."""
    conditions = _conditions(options)
    folder = Path(require_path("data", options.data))
    market, speeds = read_market(folder, options.clouds), read_speeds(folder / SPEEDS)
    for model in options.models:
        require_known("models", model, speeds)
    speeds = {model: speeds[model] for model in options.models or speeds}
    starts = (options.start_days[0], options.start_days[1])
    study = Study(market, speeds, conditions, baseline_gpu=options.baseline_gpu, starts=starts)
    from experiments.prices import drawings  # loads matplotlib

    reductions = list(study.reductions(options.days))
    result_tables = {"reductions": reductions_table(reductions), "costs": costs_table(reductions)}
    pictures = {"reductions": partial(drawings.save_reductions, reductions)}
    if DYNAMIC in study.strategies and options.durations:
        of_length = study.reductions(options.durations)
        moving = [saving for saving in of_length if saving.strategy in (MULTI_CLOUD.name, DYNAMIC.name)]
        result_tables["durations"] = reductions_table(moving)
        pictures["durations"] = partial(drawings.save_durations, moving)
    most = max(reductions, key=lambda saving: saving.reduction)
    return Result(
        figures={
            "largest_reduction": round(most.reduction, 4),
            "of_model": most.model,
            "of_strategy": most.strategy,
        },
        tables=result_tables,
        pictures=pictures,
        sentences=[*_comparison_in_words(folder, options.clouds, study), *to_lines(reductions)],
    )


def _conditions(options: PricesOptions) -> PriceConditions:
    """Return the conditions, and check all options."""
    require(bool(options.days), "days", [], "a list of at least one", "give lengths of jobs, as [4,8]")
    start_days, wanted = [*options.start_days], "two places, from and to"
    require(len(start_days) == 2, "start_days", start_days, wanted, "give them as [-35,-5]")
    for cloud in options.clouds:
        require_known("clouds", cloud, CLOUDS)
    require("aws" in options.clouds, "clouds", list(options.clouds), "with aws, of which the baseline is")
    for name in ("models", "clouds", "days", "durations"):
        require_once(name, list(getattr(options, name)))
    return PriceConditions(**{name: getattr(options, name) for name in PriceConditions.__dataclass_fields__})


def _comparison_in_words(folder: Path, clouds: Sequence[str], study: Study) -> Iterator[str]:
    first, last = study.first_and_last_start
    yield (
        f"cost reduction: mean cost of the baseline, the cheapest zone of AWS with one {study.baseline_gpu}, "
        f"divided by the mean cost of the strategy; {len(study.starts)} start days, {first} to {last}"
    )
    if left_out := [strategy.name for strategy in LADDER if strategy not in study.strategies]:
        why = "azure.csv is missing" if "azure" in clouds else f"clouds={[*clouds]}"
        yield f"left out, because {folder} has prices of AWS alone ({why}): {', '.join(left_out)}"


def reductions_table(savings: Iterable[Reduction]) -> Table:
    """Return the saving of each strategy, as a factor."""
    return Table(dict, [_case(saving) | {"reduction": f"{saving.reduction:.6f}"} for saving in savings])


def costs_table(savings: Iterable[Reduction]) -> Table:
    """Return the mean cost of a job over the start days."""
    names = ("mean_dollars", "mean_hours", "mean_moves")
    return Table(
        dict, [_case(saving) | {name: f"{getattr(saving, name):.6g}" for name in names} for saving in savings]
    )


def to_lines(savings: Sequence[Reduction]) -> list[str]:
    """Return the savings as text: a line per model, a column per strategy."""
    names = list(dict.fromkeys(saving.strategy for saving in savings))
    ratios = {(saving.days, saving.model, saving.strategy): f"{saving.reduction:.2f}" for saving in savings}
    rows = [
        [f"{days:g}", model, *(ratios[days, model, name] for name in names)]
        for days, model in dict.fromkeys((saving.days, saving.model) for saving in savings)
    ]
    return text_columns([["days", "model", *names], *rows])


def _case(saving: Reduction) -> dict[str, str]:
    return {"model": saving.model, "days": f"{saving.days:g}", "strategy": saving.strategy}
