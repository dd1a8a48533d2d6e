"""The task of `experiments.reproduce`: a published table, made again and compared with the paper's."""

from __future__ import annotations

import logging
from typing import NamedTuple

from omegaconf import DictConfig

from experiments.config.options import read_record, require, require_path
from experiments.config.records import ReproduceOptions
from experiments.reproductions.galvatron_published import TABLE_2, TABLE_3, read_cells
from experiments.reproductions.galvatron_tables import agreement, entry_of, reproduce_cells, to_csv
from experiments.steps.search_step import output_directory
from placements.files import write_text
from placements.planners.galvatron_2022.constants import ConstantsError
from placements.planners.galvatron_2022.constants_file import read_constants

log = logging.getLogger(__name__)


class Experiment(NamedTuple):
    """A table that can be made again.

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


EXPERIMENTS = {
    "galvatron_table2": Experiment("Table II of Galvatron-BMW", TABLE_2, 8, "table2.csv"),
    "galvatron_table3": Experiment("Table III of Galvatron-BMW, low performance", TABLE_3, 16, "table3.csv"),
}
"""By the names of the option ``experiment``."""


def task(config: DictConfig) -> dict[str, float]:
    """Make the table, write it, and say how much is as in the paper.

    Raises:
        OptionError: There is no such experiment.
        ConstantsError: The constants are wrong, or there are none for the table.
    """
    options = read_record(config, ReproduceOptions)
    name, known = options.experiment, ", ".join(EXPERIMENTS)
    require(name in EXPERIMENTS, "experiment", name, "known", f"the options are {known}")
    experiment, path = EXPERIMENTS[name], require_path("constants", options.constants)
    published = read_cells(experiment.published)
    entries = list(dict.fromkeys(entry_of(cell.model, experiment.num_gpus) for cell in published))
    constants = read_constants(path, entries)
    if not constants:
        raise ConstantsError(f"{path}: has no entry of {experiment.title}; add one of {', '.join(entries)}")
    try:
        cells = reproduce_cells(constants, published, experiment.num_gpus)
    except ConstantsError as error:
        raise ConstantsError(f"{path}: {error}") from None
    table = write_text(output_directory() / experiment.file, to_csv(cells))
    found = agreement(cells)
    log.info("%s from %s\n%s\ntable in %s", experiment.title, ", ".join(constants), found, table)
    return {
        "cells": found.num_cells,
        "same_out_of_memory": found.same_out_of_memory,
        "cells_with_a_batch": found.both_batches,
        "same_batch": found.same_batch,
    } | ({} if found.throughput_error is None else {"throughput_error": found.throughput_error})
