"""Layouts of the user's own beside the best one: read, and told part by part.

The module does not know how layouts are searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from experiments.config.options import OptionError
from placements.files import csv_text, in_columns
from placements.meaning import Meaning
from placements.models.parallel import Recompute
from placements.plain_data import Field
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.planning.layout_parts import PartRow, beside
from schedsearch.planning.layout_plans import LayoutPlan, LayoutPlans, layout_in_words

EXPLAINED_COLUMNS = ("layout", "part", "unit", "best", "own", "difference")
"""Columns of the table of parts."""

_MOST_REASONS = 4
"""Parts that are named in the line that says why a layout is longer."""


@dataclass(frozen=True)
class OwnLayout:
    """A layout by the names that frameworks use."""

    tp: Annotated[int, Meaning("GPUs that share each matrix", min=1)] = 1
    pp: Annotated[int, Meaning("stages of the pipeline", min=1)] = 1
    vp: Annotated[int, Meaning("chunks of each stage (virtual pipeline)", min=1)] = 1
    cp: Annotated[int, Meaning("GPUs that share the tokens of a sample", min=1)] = 1
    ep: Annotated[int, Meaning("GPUs that share the experts", min=1)] = 1
    whole_experts: Annotated[
        bool, Meaning("each expert is whole on a GPU (expert tensor parallelism of 1)")
    ] = False
    dp: Annotated[int | None, Meaning("data-parallel groups; without it as many as there are", min=1)] = None
    micro_batch_size: Annotated[int, Meaning("samples of a micro-batch of one such group", min=1)] = 1
    recompute: Annotated[Recompute, Meaning("what backwards compute again")] = "none"
    recomputed_layers: Annotated[
        int | None, Meaning("layers of each chunk that do, its first ones; without it all", min=1)
    ] = None
    zero: Annotated[int, Meaning("stage of ZeRO; above 1 without a pipeline", min=0, max=3)] = 1

    def layout(self, num_gpus: int, batch: int) -> Layout:
        """Return it with the data-parallel groups and micro-batches that GPUs and batch make.

        Raises:
            OptionError: Its degrees do not divide the GPUs or the batch, there are fewer micro-batches than
                stages, ZeRO above 1 has a pipeline, or layers compute nothing again.
        """
        shared = self.tp * self.pp * self.cp
        data, left = divmod(num_gpus, shared)
        if left or self.dp not in (None, data):
            product = f"TP {self.tp} x PP {self.pp} x CP {self.cp}"
            product += "" if self.dp is None else f" x DP {self.dp}"
            raise OptionError(
                f"{product} is {shared * (self.dp or 1)}, which does not make {num_gpus} GPUs; give degrees "
                f"whose product {'is that' if self.dp else 'divides that'}"
            )
        number, samples = divmod(batch, data * self.micro_batch_size)
        if samples or not number:
            raise OptionError(
                f"micro_batch_size: DP {data} x {self.micro_batch_size} samples do not divide the batch of "
                f"{batch}; {_sizes_that_do(batch, data)}"
            )
        if number < self.pp:
            raise OptionError(
                f"micro_batch_size: with {self.micro_batch_size} there are {number} micro-batches, fewer "
                f"than PP {self.pp}; use smaller ones, or fewer stages"
            )
        if self.zero > 1 and self.pp > 1:
            raise OptionError(
                f"zero: ZeRO-{self.zero} is planned without a pipeline, not with PP {self.pp}; use "
                "zero 1, or pp 1"
            )
        if self.recomputed_layers is not None and self.recompute == "none":
            raise OptionError(
                "recomputed_layers: nothing is computed again; give recompute too, or leave it out"
            )
        degrees = Degrees(self.tp, self.pp, data, self.cp, self.ep, self.vp, self.whole_experts)
        return Layout(
            degrees, self.micro_batch_size, number, self.zero, self.recompute, self.recomputed_layers
        )


def _sizes_that_do(batch: int, data: int) -> str:
    if batch % data:
        return f"give a batch that DP {data} divides, or other degrees"
    sizes = [size for size in range(1, batch // data + 1) if batch // data % size == 0]
    return f"use one of {', '.join(map(str, sizes[:8]))}"


def read_own_layouts(given: Any, num_gpus: int, batch: int) -> tuple[Layout, ...]:
    """Return the layouts of the option ``explain``: one, or a list.

    Raises:
        OptionError: One is wrong; the message begins with its place.
    """
    if given is None:
        return ()
    fields = [Field(given, "explain", OptionError)]
    if isinstance(given, list):
        fields = fields[0].items()
    layouts = []
    for field in fields:
        own = field.record(OwnLayout)
        try:
            layouts.append(own.layout(num_gpus, batch))
        except OptionError as error:
            raise field.mistake(str(error)) from None
    return tuple(layouts)


def explained_csv(found: LayoutPlans) -> str:
    """Return the parts of each of the user's layouts beside the best, as CSV."""
    rows = []
    for own in found.own:
        for row in beside(found.plans[0].run, own.run):
            figures = [f"{value:.4f}" for value in (row.best, row.own, row.more)]
            rows.append([layout_in_words(own.layout), row.part, row.unit, *figures])
    return csv_text(EXPLAINED_COLUMNS, rows)


def explained_lines(found: LayoutPlans) -> list[str]:
    """Return the same as text in columns, with a line that says why."""
    lines = []
    for own in found.own:
        parts = list(beside(found.plans[0].run, own.run))
        lines += [_why(own, parts), *_misfit(found, own), *in_columns(_cells(parts))]
    return lines


def _cells(parts: Sequence[PartRow]) -> list[list[str]]:
    return [["part", "unit", "best", "own", "difference"]] + [
        [row.part, row.unit, *(_shown(value, row.unit) for value in (row.best, row.own)), _shown_more(row)]
        for row in parts
        if any(float(_shown(value, row.unit).replace(",", "")) for value in (row.best, row.own))
    ]


def _shown(value: float, unit: str) -> str:
    return f"{value + 0.0:,.{1 if unit == 'ms' else 2}f}"


def _shown_more(row: PartRow) -> str:
    return f"{row.more + 0.0:+,.{1 if row.unit == 'ms' else 2}f}"


def _why(own: LayoutPlan, parts: Sequence[PartRow]) -> str:
    """Return how much longer a layout is, with the parts that differ most, in ms."""
    times = [row for row in parts if row.unit == "ms"]
    total = times.pop()
    share = 100 * total.more / total.best
    said = f"own {layout_in_words(own.layout)}: "
    if not any(row.more for row in parts):
        return f"{said}it is the best"
    how = "longer" if total.more >= 0 else "shorter"
    most = sorted(times, key=lambda row: -abs(row.more))[:_MOST_REASONS]
    reasons = ", ".join(f"{row.part} {row.more:+,.0f} ms" for row in most if abs(row.more) >= 0.5)
    return f"{said}{abs(total.more):,.0f} ms ({abs(share):.1f} %) {how}" + (f": {reasons}" if reasons else "")


def _misfit(found: LayoutPlans, own: LayoutPlan) -> list[str]:
    """Return the line of a layout that does not fit, with the nearest that does; else none."""
    if own.gib <= found.limit_gib:
        return []
    near = found.nearest(own.layout)
    said = f"it does not fit: a GPU holds {own.gib:.1f} GiB, of {found.limit_gib:.1f} that it may"
    if near is None:
        return [said]
    return [f"{said}; the nearest layout that fits is {layout_in_words(near.layout)}, {near.gib:.1f} GiB"]
