"""Measure what the cluster must reach: ``python -m experiments.benchmarks.cluster``.

Read `loads` (jobs that come and go), `terms` (what a decision is about, as arrays, and what it is worth),
`cvxpy_programs` (the same programs in cvxpy, in a process of its own), `beside_cvxpy` (asks that process),
`measuring` (an allocation, a simulation), `cases` (what must be reached).
"""
