"""The task of `experiments.reproduce`: a published table, made again and compared with the paper's."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import NamedTuple

from omegaconf import DictConfig

from experiments.config.command import Interrupted
from experiments.config.options import (
    OptionError,
    read_record,
    require,
    require_known,
    require_once,
    require_path,
)
from experiments.config.progress import StepBar
from experiments.config.records import ReproduceOptions
from experiments.reproductions.galvatron_cells import TABLES, published_columns
from experiments.reproductions.galvatron_published import TABLE_2, TABLE_3, read_cells
from experiments.reproductions.galvatron_tables import agreement, entry_of, reproduce_cells, to_csv
from experiments.reproductions.galvatron_trends import RememberedCosts, best_batches
from experiments.reproductions.large_vocabulary import (
    CASES,
    PAPER_SPEEDUPS,
    VocabularyRow,
    cluster_of,
    compare_shapes,
    model_of,
    rows_to_csv,
    speedup,
)
from experiments.reproductions.trend_agreement import TrendColumn, trend_agreement, trends_to_csv
from experiments.steps.search_step import output_directory
from placements.cluster import CLUSTERS
from placements.files import write_text
from placements.models.zoo import MODELS
from placements.planners.galvatron_2022.constants import ConstantsError
from placements.planners.galvatron_2022.constants_file import read_constants
from placements.planners.hybrid.shape_costs import ShapeCosts

log = logging.getLogger(__name__)


class Table(NamedTuple):
    """A table that can be made again from its constants.

    Attributes:
        title: As the paper calls it.
        published: Its figures, for `experiments.reproductions.galvatron_published.read_cells`.
        num_gpus: That it is of.
        file: What is written.
    """

    title: str
    published: str
    num_gpus: int
    file: str

    def reproduce(self, options: ReproduceOptions) -> Mapping[str, float]:
        """Make the table, write it, and say how much is as in the paper.

        Raises:
            OptionError: No constants are given.
            ConstantsError: The constants are wrong, or there are none for the table.
        """
        if options.constants is None:
            raise OptionError("constants: has no value; give one, as in constants=VALUE")
        path = require_path("constants", options.constants)
        published = read_cells(self.published)
        entries = list(dict.fromkeys(entry_of(cell.model, self.num_gpus) for cell in published))
        constants = read_constants(path, entries)
        if not constants:
            raise ConstantsError(f"{path}: has no entry of {self.title}; add one of {', '.join(entries)}")
        try:
            cells = reproduce_cells(constants, published, self.num_gpus)
        except ConstantsError as error:
            raise ConstantsError(f"{path}: {error}") from None
        table = write_text(output_directory() / self.file, to_csv(cells))
        found = agreement(cells)
        log.info("%s from %s\n%s\ntable in %s", self.title, ", ".join(constants), found, table)
        return {
            "cells": found.num_cells,
            "same_out_of_memory": found.same_out_of_memory,
            "cells_with_a_batch": found.both_batches,
            "same_batch": found.same_batch,
        } | ({} if found.throughput_error is None else {"throughput_error": found.throughput_error})


def reproduce_trends(options: ReproduceOptions) -> Mapping[str, float]:
    """Search the plans of tables column by column; what is done is in the file after each.

    Raises:
        OptionError: There is no such table.
        Interrupted: From the keyboard.
    """
    _check_names("tables", options.tables, TABLES)
    published = published_columns(options.tables)
    path = output_directory() / "trends.csv"
    costs: dict[tuple[str, str], RememberedCosts] = {}
    columns: list[TrendColumn] = []
    with StepBar("trends") as bar:
        try:
            for done, column in enumerate(published):
                name = f"Table {column.table}, {column.model}, {column.memory_gb} GB"
                bar(name, done, len(published))
                key = column.model_name, column.cluster
                if key not in costs:
                    costs[key] = RememberedCosts(ShapeCosts(MODELS[column.model_name]))
                cluster = CLUSTERS[column.cluster]
                columns.append(
                    TrendColumn(column, best_batches(costs[key], cluster, column.memory_gb, column.best))
                )
                write_text(path, trends_to_csv(columns))
            bar("all", len(published), len(published))
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; the {len(columns)} columns found so far are in {path}") from None
    found = trend_agreement(columns)
    for each in columns:
        for larger, smaller in each.broken:
            log.warning("%s %s: %s is below %s", each.published.table, each.published.model, larger, smaller)
    log.info(
        "Galvatron-BMW, Tables %s, with costs from data sheets: trends, and not measured throughputs\n%s\n"
        "table in %s",
        ", ".join(options.tables),
        found,
        path,
    )
    return {name: value for name, value in asdict(found).items() if not math.isnan(value)}


def compare_vocabularies(options: ReproduceOptions) -> Mapping[str, float]:
    """Search plans and schedules of models of large vocabularies; what is done is in the file after each.

    Raises:
        OptionError: There is no such model.
        Interrupted: From the keyboard.
    """
    _check_names("models", options.models, CASES)
    path = output_directory() / "vocabulary.csv"
    rows: list[VocabularyRow] = []
    lines: list[str] = []
    figures: dict[str, float] = {}
    with StepBar("vocabulary") as bar:
        try:
            for done, name in enumerate(options.models):
                case = CASES[name]
                said = partial(_say_step, bar, name, done, len(options.models))
                found = compare_shapes(model_of(case), cluster_of(case), case.shape, report=said)
                rows += found
                write_text(path, rows_to_csv(rows))
                ratio = speedup(found)
                if ratio is not None:
                    figures[f"{name}_speedup"] = ratio
                lines.append(
                    f"{name}, {case.num_gpus} GPUs: the {case.shape} is "
                    + ("not compared" if ratio is None else f"{ratio:.2f} times as fast as the v_shape")
                    + f" (paper: at most {PAPER_SPEEDUPS[case.shape]:g})"
                )
            bar("all", len(options.models), len(options.models))
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; the {len(rows)} rows found so far are in {path}") from None
    log.info("Tessel, Fig. 13 and 14, with costs from data sheets\n%s\ntable in %s", "\n".join(lines), path)
    return figures


def _say_step(bar: StepBar, name: str, done: int, total: int, step: str) -> None:
    bar(f"{name}: {step}", done, total)


def _check_names(where: str, names: list[str], known: Mapping[str, object] | tuple[str, ...]) -> None:
    require(bool(names), where, names, "a list of at least one", f"the options are {', '.join(known)}")
    for name in names:
        require_known(where, name, known)
    require_once(where, names)


EXPERIMENTS: dict[str, Callable[[ReproduceOptions], Mapping[str, float]]] = {
    "galvatron_table2": Table("Table II of Galvatron-BMW", TABLE_2, 8, "table2.csv").reproduce,
    "galvatron_table3": Table(
        "Table III of Galvatron-BMW, low performance", TABLE_3, 16, "table3.csv"
    ).reproduce,
    "galvatron_trends": reproduce_trends,
    "large_vocabulary": compare_vocabularies,
}
"""By the names of the option ``experiment``."""


def task(config: DictConfig) -> Mapping[str, float]:
    """Make what is asked for again.

    Raises:
        OptionError: There is no such experiment.
    """
    options = read_record(config, ReproduceOptions)
    name, known = options.experiment, ", ".join(EXPERIMENTS)
    require(name in EXPERIMENTS, "experiment", name, "known", f"the options are {known}")
    return EXPERIMENTS[name](options)
