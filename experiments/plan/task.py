"""The task of `experiments.plan`: the planner that is chosen plans."""

from __future__ import annotations

from importlib import import_module

from experiments.plan.options import PlanCommandOptions


def task(options: PlanCommandOptions) -> dict[str, float | str]:
    """Plan, write the plans and why they are as they are, and return the figures of the best."""
    figures: dict[str, float | str] = import_module(options.planner.module).task(options, options.planner)
    return figures
