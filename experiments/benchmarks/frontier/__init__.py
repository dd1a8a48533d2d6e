"""Measure what the energy frontier must reach: ``python -m experiments.benchmarks.frontier`` (see README).

Read `cases` (profiles, and what must be reached on each), `measuring` (speed, savings, gaps), `ablation`
(what each generator of plans is worth), `lowtime_plans` (the solver of Perseus's authors, beside ours).
"""
