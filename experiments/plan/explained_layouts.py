"""Layouts, all layers shared alike: the user's own read, and all written and told beside the best one.

The module does not know how layouts are searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from experiments.config.options import OptionError
from placements.files import csv_text, text_columns, write_text
from placements.meaning import Meaning
from placements.models.parallel import Recompute
from placements.plain_data import Field
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.planning.layout_parts import beside
from schedsearch.planning.plans import Plans
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
        shared, size = self.tp * self.pp * self.cp, self.micro_batch_size
        data, left = divmod(num_gpus, shared)
        data = data or 1
        number, samples = divmod(batch, data * size)
        degrees = f"TP {self.tp} x PP {self.pp} x CP {self.cp} x DP {self.dp or data}"
        is_without = self.recompute == "none" and self.recomputed_layers is not None
        remedies = {
            f"{degrees} are not {num_gpus} GPUs; give degrees whose product divides that": left
            or self.dp not in (None, data),
            f"micro_batch_size: DP {data} x {size} samples do not divide the batch of {batch}; give a "
            "divisor, or other degrees": samples or not number,
            f"micro_batch_size: with {size} there are {number} micro-batches, fewer than PP {self.pp}; use "
            "smaller ones, or fewer stages": number < self.pp,
            f"zero: ZeRO-{self.zero} is planned without a pipeline, not with PP {self.pp}; use zero 1, or pp "
            "1": self.zero > 1 < self.pp,
            "recomputed_layers: nothing is computed again; give recompute too, or leave it out": is_without,
        }
        for message, is_wrong in remedies.items():
            if is_wrong:
                raise OptionError(message)
        return Layout(
            Degrees(self.tp, self.pp, data, self.cp, self.ep, self.vp, self.whole_experts),
            *(size, number, self.zero, self.recompute, self.recomputed_layers),
        )


def read_own_layouts(given: Any, num_gpus: int, batch: int) -> tuple[Layout, ...]:
    """Return the layouts of the option ``explain``: one, or a list.

    Raises:
        OptionError: One is wrong; the message begins with its place.
    """
    if given is None:
        return ()
    field = Field(given, "planner.explain", OptionError)
    layouts = []
    for each in field.items() if isinstance(given, list) else [field]:
        own = each.record(OwnLayout)
        try:
            layouts.append(own.layout(num_gpus, batch))
        except OptionError as error:
            raise each.mistake(str(error)) from None
    return tuple(layouts)


def save_layouts(plans: Plans, directory: Path) -> None:
    """Write the best layouts by the formula, and the memory of the best plan if it is one."""
    rows = []
    for found in plans.layouts.values():
        for each in found.estimates[:_MOST_ROWS]:
            settings = {**vars(each.layout.degrees), **vars(each.layout)}
            figures = f"{each.time_ms:.1f}", f"{each.load_ms:.1f}", f"{each.gib:.2f}"
            rows.append([*(settings[name] for name in _SETTINGS), *figures, each.gib <= found.limit_gib])
    if rows:
        columns = (*_SETTINGS, "formula_ms", "load_ms", "gib", "fits")
        write_text(directory / "layouts.csv", csv_text(columns, rows))
    if plans.proposed and (run := plans.best.run):
        tensors = (
            [stage, each.kind, each.name, f"{each.gib:.3f}", each.held, each.rule]
            for stage in range(run.plan.num_stages)
            for each in run.memory(stage)
        )
        names = ("stage", "kind", "tensor", "gib", "held", "rule")
        write_text(directory / "memory.csv", csv_text(names, tensors))


def lines_of_layouts(plans: Plans) -> list[str]:
    """Return what is known of the layouts of each batch, and the user's own part by part."""
    lines = []
    for batch, found in plans.layouts.items():
        runs = [each.run for each in found.plans if each.run is not None]
        known = "none fits"
        if runs:
            best_ms = runs[0].iteration_ms
            known = (
                f"{found.num_layouts - found.num_left} layouts rated by the formula; no schedule of one that "
                f"fits is shorter than {found.bound_ms:,.0f} ms "
                f"({100 * (1 - found.bound_ms / best_ms):.1f} % below the best layout)"
            )
        lines.append(f"layouts, batch {batch}: {known}")
        if found.num_left:
            why = "interrupted" if found.interrupted else "time_limit_s is over"
            lines.append(
                f"layouts, batch {batch}: {why}: {found.num_left} were not looked at; the bound is that of "
                "the others"
            )
        runs = [run for run in runs if run is plans.best.run] or runs
        for own in found.own if runs else ():
            lines += _explained(runs[0], own, found.limit_gib)
    return lines


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
