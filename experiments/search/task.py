"""The task of `experiments.search`: steps 1 and 2."""

from __future__ import annotations

from experiments.config.run_record import output_directory
from experiments.search.options import SearchCommandOptions
from experiments.search.problem import read_problem
from experiments.search.report import save_search_report
from experiments.search.search_step import search_and_save


def task(options: SearchCommandOptions) -> dict[str, float | str]:
    """Search, save and draw; return the figures."""
    problem, directory = read_problem(options), output_directory()
    found = search_and_save(options, problem, directory)
    from experiments.search.pictures import draw_schedule  # loads matplotlib

    draw_schedule(found, directory)
    save_search_report(found, directory)
    return found.figures
