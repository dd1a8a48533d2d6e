"""Layouts, all layers shared alike: the user's own read, and all written and told beside the best one.

The module does not know how layouts are searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from experiments.config.options import OptionError
from placements.forms.meaning import Meaning
from placements.forms.reading import Field
from placements.forms.texts import csv_text, text_columns, write_text
from placements.models.parallel import Recompute
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.figures.bars import MemoryPanel, draw_layout_memory
from schedsearch.figures.canvas import save as save_figure
from schedsearch.planning.layout_parts import beside, memory_by_part
from schedsearch.planning.plans import LayoutPlans, Plans
from schedsearch.planning.uniform_run import UniformRun, layout_in_words

_SETTINGS = (
    *("tensor", "pipeline", "chunks", "context", "expert", "whole_experts", "data", "zero"),
    *("micro_batch_size", "num_micro_batches", "recompute", "recomputed_layers"),
)
"""Fields of a layout, and of its degrees, that are printed."""

_MOST_ROWS = 1000
"""Layouts in the table of all, the best ones."""

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
            sizes = [str(size) for size in range(1, batch // data + 1) if batch // data % size == 0][:8]
            remedy = f"give a batch that DP {data} divides, or other degrees"
            remedy = remedy if batch % data else f"use one of {', '.join(sizes)}"
            raise OptionError(
                f"micro_batch_size: DP {data} x {self.micro_batch_size} samples do not divide the batch of "
                f"{batch}; {remedy}"
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


def read_own_layouts(given: Any, num_gpus: int, batch: int) -> tuple[Layout, ...]:
    """Return the layouts of the option ``explain``: one, or a list.

    Raises:
        OptionError: One is wrong; the message begins with its place.
    """
    if given is None:
        return ()
    field = Field(given, "explain", OptionError)
    layouts = []
    for each in field.items() if isinstance(given, list) else [field]:
        own = each.record(OwnLayout)
        try:
            layouts.append(own.layout(num_gpus, batch))
        except OptionError as error:
            raise each.mistake(str(error)) from None
    return tuple(layouts)


def save_layouts(plans: Plans, directory: Path) -> None:
    """Write all layouts, and the memory of the first plan if it is one beside that of the user's own."""
    rows = []
    for found in plans.layouts.values():
        for each in found.estimates[:_MOST_ROWS]:
            settings = {**vars(each.layout.degrees), **vars(each.layout)}
            figures = f"{each.time_ms:.1f}", f"{each.load_ms:.1f}", f"{each.gib:.2f}"
            rows.append([*(settings[name] for name in _SETTINGS), *figures, each.gib <= found.limit_gib])
    if rows:
        columns = (*_SETTINGS, "formula_ms", "load_ms", "gib", "fits")
        write_text(directory / "layouts.csv", csv_text(columns, rows))
    run = plans.proposed[0].run if plans.proposed else None
    if run is not None:
        found, reserve_gib = plans.layouts[run.layout.batch], plans.options.reserve_gib
        tensors = (
            [stage, each.kind, each.name, f"{each.gib:.3f}", each.held, each.rule]
            for stage in range(run.plan.num_stages)
            for each in run.memory(stage)
        )
        names = ("stage", "kind", "tensor", "gib", "held", "rule")
        write_text(directory / "memory.csv", csv_text(names, tensors))
        others = [each for each in found.own if each.layout != run.layout]
        panels = [
            MemoryPanel(
                layout_in_words(each.layout),
                {f"stage {i}": memory_by_part(each, i) for i in range(each.plan.num_stages)},
                found.limit_gib + reserve_gib,
                reserve_gib,
            )
            for each in (run, *others)
        ]
        save_figure(draw_layout_memory(panels), directory / "memory")


def lines_of_layouts(plans: Plans) -> list[str]:
    """Return what is known of the layouts of each batch, and the user's own part by part."""
    lines = []
    for batch, found in plans.layouts.items():
        known = "none fits"
        if found.plans:
            best_ms = _best_of(plans, found).iteration_ms
            known = (
                f"{sum(each.gib <= found.limit_gib for each in found.estimates)} of {len(found.estimates)} "
                "layouts fit by the formula; no schedule of one of them is shorter than "
                f"{found.bound_ms:,.0f} ms ({100 * (1 - found.bound_ms / best_ms):.1f} % below the best)"
            )
        lines.append(f"layouts, batch {batch}: {known}")
        if found.num_left:
            why = "interrupted" if found.interrupted else "time_limit_s is over"
            lines.append(
                f"layouts, batch {batch}: {why}: {found.num_left} were not looked at; the bound is that of "
                "the others"
            )
        for own in found.own if found.plans else ():
            lines += _explained(_best_of(plans, found), own, found.limit_gib)
    return lines


def _best_of(plans: Plans, found: LayoutPlans) -> UniformRun:
    """Return the best layout: the best plan, or the fastest."""
    runs = [each.run for each in found.plans if each.run is not None]
    return next((run for run in runs if run is plans.best.run), runs[0])


def _explained(best: UniformRun, own: UniformRun, limit_gib: float) -> Iterator[str]:
    """Yield how much longer a layout is, with the parts that differ most, and a table of them."""
    parts = list(beside(best, own))
    *times, total = (row for row in parts if row.unit == "ms")
    most = sorted(times, key=lambda row: -abs(row.more))[:_MOST_REASONS]
    reasons = ", ".join(f"{row.part} {row.more:+,.0f} ms" for row in most if abs(row.more) >= 0.5)
    how = f"{'longer' if total.more >= 0 else 'shorter'}{': ' if reasons else ''}{reasons}"
    how = f"{abs(total.more):,.0f} ms ({abs(100 * total.more / total.best):.1f} %) {how}"
    yield f"own {layout_in_words(own.layout)}: {how if any(row.more for row in parts) else 'it is the best'}"
    if (gib := max(own.gib_by_stage)) > limit_gib:
        yield f"it does not fit: a GPU holds {gib:.1f} GiB, of {limit_gib:.1f} that it may"
    rows = [["part", "unit", "best", "own", "difference"]]
    for row in parts:
        digits = 1 if row.unit == "ms" else 2
        shown = [f"{value + 0.0:,.{digits}f}" for value in (row.best, row.own)]
        if any(float(each.replace(",", "")) for each in shown):
            rows.append([row.part, row.unit, *shown, f"{row.more + 0.0:+,.{digits}f}"])
    yield from text_columns(rows)
