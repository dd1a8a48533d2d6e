"""Measure what planners must reach: ``python -m experiments.benchmarks.planners``.

Read `measuring` (PipeDream's planner, stages with the output layer, and divisions of layers, as rows),
`plan_searches` (plans of models on clusters), `cases` (what must be reached).
"""
