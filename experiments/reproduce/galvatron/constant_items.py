"""Tables II and III of Galvatron-BMW from the constants that were published with its search of 2022.

From the constants three rows are made: Galvatron, whose search chooses among all strategies, and the same
with two kinds of parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from experiments.config.options import OptionError, require_path
from experiments.reproduce.galvatron.cell_rows import best_in, rows_of, values_of
from experiments.reproduce.galvatron.constant_tables import (
    MODELS,
    ReproducedCell,
    agreement,
    best_of,
    entry_of,
    to_csv,
)
from experiments.reproduce.galvatron.published_cells import TABLE_2, TABLE_3, PublishedCell, read_cells
from experiments.reproduce.galvatron.published_columns import Best
from experiments.reproduce.galvatron.search_2022.batch_search import check_layers
from experiments.reproduce.galvatron.search_2022.constants import Constants, ConstantsError
from experiments.reproduce.galvatron.search_2022.constants_file import read_constants
from experiments.reproduce.item import Claim, Item, Row, Trend
from placements.meaning import option
from placements.plain_data import in_file

LARGER = (("Galvatron", "DP+TP"), ("Galvatron", "DP+PP"))
"""Pairs of methods of which the first may choose all that the second may."""


@dataclass(frozen=True)
class ConstantsOptions:
    """Options of both tables."""

    constants: str | None = option(None, "JSON file with the values measured for each model in 2022")


class Table(NamedTuple):
    """A table that can be made again from its constants.

    Attributes:
        title: As the paper calls it.
        published: Its figures, for `read_cells`.
        num_gpus: That it is of.
        file: What is written.
    """

    title: str
    published: str
    num_gpus: int
    file: str

    def models(self, options: ConstantsOptions) -> list[str]:
        """Return the models that there are constants of, in the paper's order.

        Raises:
            OptionError: No constants are given.
            ConstantsError: They are wrong, or there are none for the table.
        """
        constants = self._constants(options)
        models = dict.fromkeys(cell.model for cell in read_cells(self.published))
        found = [model for model in models if entry_of(model, self.num_gpus) in constants]
        if not found:
            entries = ", ".join(dict.fromkeys(entry_of(model, self.num_gpus) for model in models))
            raise ConstantsError(f"{options.constants}: has no entry of {self.title}; add one of {entries}")
        with in_file(str(options.constants), ConstantsError):
            for model in found:
                check_layers(constants[entry_of(model, self.num_gpus)], MODELS[model][1])
        return found

    def rows(self, options: ConstantsOptions, model: str) -> list[Row]:
        """Return the rows of a model."""
        constants = self._constants(options)[entry_of(model, self.num_gpus)]
        return [
            row
            for cell in read_cells(self.published)
            if cell.model == model
            for row in rows_of(model, _label(cell), best_of(constants, cell), _best(cell))
        ]

    def files(self, rows: Sequence[Row]) -> Mapping[str, str]:
        """Return the table as CSV, in the paper's order."""
        return {self.file: to_csv(list(self._cells(rows)))}

    def trends(self, rows: Sequence[Row]) -> Sequence[Trend]:
        """Return how much is as in the paper."""
        cells = list(self._cells(rows))
        found = agreement(cells)
        same, both = found.same_out_of_memory, found.both_batches
        rates = {cell.published[:3]: cell.found.samples_per_s if cell.found else 0.0 for cell in cells}
        pairs = [
            rates[model, gb, larger] >= rates[model, gb, smaller]
            for model, gb in dict.fromkeys(cell.published[:2] for cell in cells)
            for larger, smaller in LARGER
        ]
        trends = [
            Trend("what fits is what fits in the paper", same == found.num_cells, _of(same, found.num_cells)),
            Trend("the batch is the paper's", found.same_batch == both, _of(found.same_batch, both)),
            Trend("all strategies are no worse than two kinds", all(pairs), _of(sum(pairs), len(pairs))),
        ]
        if found.throughput_error is not None:
            error = found.throughput_error
            says = "predicted throughputs are off by less than 5 % on average (Fig. 7)"
            trends.append(Trend(says, error < 0.05, f"mean absolute error {error:.2%}"))
        return trends

    def _constants(self, options: ConstantsOptions) -> dict[str, Constants]:
        if options.constants is None:
            raise OptionError("constants: has no value; give one, as in constants=VALUE")
        entries = dict.fromkeys(entry_of(cell.model, self.num_gpus) for cell in read_cells(self.published))
        return read_constants(require_path("constants", options.constants), list(entries))

    def _cells(self, rows: Sequence[Row]) -> Iterator[ReproducedCell]:
        values = values_of(rows)
        models = {row.case for row in rows}
        for cell in read_cells(self.published):
            if cell.model in models:
                yield ReproducedCell(cell, best_in(values, cell.model, _label(cell)))


def _label(cell: PublishedCell) -> str:
    return f"{cell.memory_gb} GB, {cell.method}"


def _best(cell: PublishedCell) -> Best | None:
    return None if cell.batch is None or cell.samples_per_s is None else Best(cell.batch, cell.samples_per_s)


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole}"


_BECAUSE = "the throughput is what the cost model of 2022 predicts, and the paper's was measured"


def _item(name: str, source: str, title: str, table: Table) -> Item:
    return Item(
        name,
        source,
        title,
        Claim.TREND,
        ConstantsOptions,
        ConstantsOptions(),
        table.models,
        table.rows,
        table.trends,
        files=table.files,
        inputs={"constants": "galvatron/rtx_titan_2022/profile_constants.json"},
        because=_BECAUSE,
    )


TABLE_2_ITEM = _item(
    "galvatron_table2",
    "Galvatron-BMW, Table II",
    "8 RTX TITAN, from the constants of 2022",
    Table("Table II of Galvatron-BMW", TABLE_2, 8, "table2.csv"),
)

TABLE_3_ITEM = _item(
    "galvatron_table3",
    "Galvatron-BMW, Table III, low performance",
    "16 RTX TITAN, from the constants of 2022",
    Table("Table III of Galvatron-BMW, low performance", TABLE_3, 16, "table3.csv"),
)
