"""The task of ``schedsearch profile_rates``: rates of this machine by shape, as a file."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from experiments.config.options import require, require_known
from experiments.config.run_record import output_directory
from experiments.profile_rates.options import RatesCommandOptions
from experiments.report.result import Result
from placements.forms.tables import keys_of
from placements.forms.texts import csv_text, write_text
from placements.gpus import GPUS
from placements.models.machine.machine_file import MachineRow, read_machine
from placements.models.zoo import read_model
from runtime.profiling.rates import measured_rows, operator_shapes, rates_options
from schedsearch.core.progress import StepBar


def task(options: RatesCommandOptions) -> Result:
    """Measure every different operator of a model, and write all rates after each."""
    require_known("gpu", options.gpu, GPUS)
    degrees = options.tensor_parallel
    require(bool(degrees), "tensor_parallel", [], "a list of whole numbers", "give some, as [1,2,4,8]")
    sizes = {} if options.sequence_length is None else {"sequence_length": options.sequence_length}
    model = read_model(options.model, **sizes)
    how = rates_options(options.device, options.repeats)
    shapes = operator_shapes(model.chained.layers, degrees, options.micro_batch, how)
    rows: list[MachineRow] = []
    name, interrupted = f"{options.gpu}_rates.csv", ""
    path = output_directory() / name
    with StepBar("rates") as show:
        try:
            for row in measured_rows(shapes, GPUS[options.gpu], how):
                rows.append(row)
                show(f"{row.operator} {row.which} {row.sizes}", len(rows), len(shapes))
                write_text(path, to_csv(rows))
        except KeyboardInterrupt:
            interrupted = f"{len(rows)} of {len(shapes)} rows are in {name} of"
    if not interrupted:
        read_machine(path, GPUS[options.gpu])
    products = [row.share for row in rows if row.operator == "product" and row.share is not None]
    return Result(
        figures={"rows": len(rows), "mean_product_share": fmean(products)} if products else {},
        files={name: to_csv(rows)},
        sentences=[f"{len(rows)} operators of {model.name} on {options.gpu}"],
        interrupted=interrupted,
    )


def to_csv(rows: Sequence[MachineRow]) -> str:
    """Return rows as a file of a machine."""
    cells = [
        (row.operator, row.which, row.sizes, _cell(row.share, 4), _cell(row.latency_us, 3)) for row in rows
    ]
    return csv_text(keys_of(MachineRow)[:5], cells)


def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}g}"
