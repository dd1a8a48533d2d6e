"""The task of `experiments.search`: steps 1 and 2."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from experiments.config.run_record import output_directory
from experiments.report.result import Result
from experiments.search.options import SearchCommandOptions
from experiments.search.problem import read_problem
from experiments.search.search_step import search


def task(options: SearchCommandOptions) -> Result:
    """Search; the figures are the schedule's."""
    solution, result = search(options, read_problem(options))
    if result.interrupted:
        return result
    from experiments.search.pictures import draw_memory, draw_timeline  # loads matplotlib
    from experiments.search.report import file_facts, schedule_page

    written = {*result.files, *(f"{name}.csv" for name in result.tables)}
    page = schedule_page(solution, file_facts(output_directory(), written))
    pictures = {"timeline": partial(draw_timeline, solution), "memory": partial(draw_memory, solution)}
    return replace(result, files=dict(result.files) | {"report.html": page}, pictures=pictures)
