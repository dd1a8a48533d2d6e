"""Tables II and III of Galvatron-BMW from the constants that were published with its search of 2022.

From the constants three rows are made: Galvatron, whose search chooses among all strategies, and the same
with two kinds of parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from experiments.config.options import OptionError, require_path
from experiments.reproduce.galvatron.columns import FIGURES, ReproducedColumn, same_memory
from experiments.reproduce.galvatron.published_columns import Best, PublishedColumn, published_columns
from experiments.reproduce.galvatron.search_2022.batch_search import best_plan, check_layers
from experiments.reproduce.galvatron.search_2022.constants import Constants, ConstantsError
from experiments.reproduce.galvatron.search_2022.constants_file import read_constants
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.rows import cases_in, in_all
from placements.files import csv_text
from placements.meaning import option
from placements.plain_data import in_file

METHODS = ("Galvatron", "DP+TP", "DP+PP")
"""All strategies, and two kinds of parallelism."""

MODELS = {
    "BERT-Huge-32": ("bert_1280", (32,)),
    "BERT-Huge-48": ("bert_1280", (48,)),
    "ViT-Huge-32": ("vit_1280", (32,)),
    "ViT-Huge-48": ("vit_1280", (48,)),
    "T5-Large-32": ("t5_1024", (16, 16)),
    "T5-Large-48": ("t5_1024", (24, 24)),
    "Swin-Huge-32": ("swin_320", (2, 2, 26, 2)),
    "Swin-Huge-48": ("swin_320", (2, 2, 42, 2)),
}
"""By the paper's names (Table I): family and width of the constants, and the layers of each type."""

_LABEL = "{gb} GB, {method}"


@dataclass(frozen=True)
class ConstantsOptions:
    """Options of both tables."""

    constants: str | None = option(None, "JSON file with the values measured for each model in 2022")


@dataclass(frozen=True)
class ConstantTable:
    """A table that can be made again from its constants.

    Attributes:
        number: Number of the paper.
        title: As the paper calls it.
        num_gpus: RTX TITAN that it is of.
        file: What is written.
    """

    number: str
    title: str
    num_gpus: int
    file: str

    @cached_property
    def columns(self) -> list[PublishedColumn]:
        """The paper's columns, with the methods that are made again."""
        return [
            replace(column, best={method: column.best[method] for method in METHODS})
            for column in published_columns((self.number,))
            if column.model in MODELS and column.cluster == f"galvatron_titan_{self.num_gpus}"
        ]

    def entry(self, model: str) -> str:
        """Return the name of a model's constants."""
        return f"{MODELS[model][0]}_{self.num_gpus}gpus"

    def models(self, options: ConstantsOptions) -> list[str]:
        """Return the models that there are constants of, in the paper's order.

        Raises:
            OptionError: No constants are given.
            ConstantsError: They are wrong, or there are none for the table.
        """
        constants = self._constants(options)
        entries = {column.model: self.entry(column.model) for column in self.columns}
        found = [model for model, entry in entries.items() if entry in constants]
        if not found:
            names = ", ".join(dict.fromkeys(entries.values()))
            raise ConstantsError(f"{options.constants}: has no entry of {self.title}; add one of {names}")
        with in_file(str(options.constants), ConstantsError):
            for model in found:
                check_layers(constants[entries[model]], MODELS[model][1])
        return found

    def rows(self, options: ConstantsOptions, model: str) -> Iterator[Row]:
        """Yield the rows of a model."""
        constants, layers = self._constants(options)[self.entry(model)], MODELS[model][1]
        for column in (each for each in self.columns if each.model == model):
            found = dict[str, Best | None]()
            for method in METHODS:
                plan = best_plan(constants, layers, column.memory_gb, method.lower())
                found[method] = None if plan is None else Best(plan.batch, plan.samples_per_s)
            yield from ReproducedColumn(column, found).rows(_LABEL)

    def files(self, rows: Sequence[Row]) -> Mapping[str, str]:
        """Return the table as CSV, in the paper's order."""
        lines = [
            (each.published.model, each.published.memory_gb, method, *figures)
            for each in self._read(rows)
            for method, figures in each.lines
        ]
        lines.sort(key=lambda line: (line[1], METHODS.index(line[2])))
        return {self.file: csv_text(("model", "memory_gb", "method", *FIGURES), lines)}

    def trends(self, rows: Sequence[Row]) -> Iterator[Trend]:
        """Yield how much is as in the paper."""
        columns = self._read(rows)
        yield same_memory(columns, of="")
        both = [(ours, paper) for each in columns for _, ours, paper in each.cells if ours and paper]
        same = [ours.batch == paper.batch for ours, paper in both]
        yield Trend("the batch is the paper's", all(same), f"{sum(same)} of {len(same)}")
        pairs = [pair not in each.broken for each in columns for pair in each.compared]
        yield in_all("all strategies are no worse than two kinds", pairs, "", start="")
        if both:
            error = fmean(abs(ours.samples_per_s / paper.samples_per_s - 1) for ours, paper in both)
            says = "predicted throughputs are off by less than 5 % on average (Fig. 7)"
            yield Trend(says, error < 0.05, f"mean absolute error {error:.2%}")

    def item(self, paper: str, part: str) -> Item:
        """Return the table as an item."""
        return Item(
            f"galvatron_{self.file.removesuffix('.csv')}",
            paper,
            part,
            f"{self.num_gpus} RTX TITAN, from the constants of 2022",
            Claim.TREND,
            self.models,
            self.rows,
            self.trends,
            small=ConstantsOptions(),
            files=self.files,
            inputs={"constants": "galvatron/rtx_titan_2022/profile_constants.json"},
            because="the throughput is what the cost model of 2022 predicts, and the paper's was measured",
        )

    def _constants(self, options: ConstantsOptions) -> dict[str, Constants]:
        if options.constants is None:
            raise OptionError("constants: has no value; give one, as in constants=VALUE")
        entries = list(dict.fromkeys(self.entry(column.model) for column in self.columns))
        return read_constants(require_path("constants", options.constants), entries)

    def _read(self, rows: Sequence[Row]) -> list[ReproducedColumn]:
        made = cases_in(rows)
        return [
            ReproducedColumn.read(column, rows, column.model, _LABEL)
            for column in self.columns
            if column.model in made
        ]


TABLE_2 = ConstantTable("II", "Table II of Galvatron-BMW", 8, "table2.csv")
TABLE_3 = ConstantTable("III", "Table III of Galvatron-BMW, low performance", 16, "table3.csv")

CONSTANT_ITEMS = (
    TABLE_2.item("Galvatron-BMW", "Table II"),
    TABLE_3.item("Galvatron-BMW", "Table III, low performance"),
)
