"""Measure what planners must reach: ``python -m experiments.benchmarks.planners``.

Read `measured_iterations` (published runs of unbalanced stages), `unbalanced_stages` (what the output layer
costs them, and what other placements bring), `measuring` (PipeDream's planner, those stages, and divisions of
layers, as rows), `plan_searches` (plans of models on clusters), `cases` (what must be reached).
"""
