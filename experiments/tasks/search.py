"""The task of `experiments.search`: steps 1 and 2."""

from __future__ import annotations

from omegaconf import DictConfig

from experiments.config.options import read_options
from experiments.config.records.search import Options
from experiments.report.pictures import draw_schedule
from experiments.report.report import save_search_report
from experiments.steps.placement_building import build_placement
from experiments.steps.profile_reading import read_profile
from experiments.steps.search_step import output_directory, search_and_save


def task(config: DictConfig) -> dict[str, float | str]:
    """Search, save and draw; return the figures."""
    options = read_options(config, Options)
    profile = read_profile(options)
    directory = output_directory()
    found = search_and_save(options, build_placement(options, profile), profile, directory)
    draw_schedule(found, directory)
    save_search_report(found, directory)
    return found.figures
