"""The task of `experiments.plan`: the planner that is chosen plans."""

from __future__ import annotations

from importlib import import_module

from experiments.plan.options import PlanCommandOptions
from experiments.report.result import Result


def task(options: PlanCommandOptions) -> Result:
    """Plan with the planner that is chosen; the figures are the best plan's."""
    result: Result = import_module(options.planner.module).task(options, options.planner)
    return result
