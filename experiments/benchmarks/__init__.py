"""Benchmarks: goals, measured case by case: ``python -m experiments.benchmarks GROUP``.

A case is a line of ``cases/GROUP.yaml``: the arguments of a measure, and what the figures that it returns
must reach. A measure is a function in `measures`, a file for each group, which knows nothing of files and
tables. The frame chooses cases, runs them one by one, holds their figures against what they must reach,
writes one table, and compares it with another one. So a new case is a line, and a new measure a function.

- `frame`: cases, rows and tables
- `command`: chooses cases, runs them, and goes on after an interruption
- `timing`: CPU seconds, ours over a peer's, and solvers loaded before
- `measures`: functions of cases, a file for each group
- `inputs`: placements, profiles and batches that measures are about
- `others`: peers, and programs of our own that stand for them
- `instances`: data set of named problems with the best answers known, and its checker
- `best_known`: searches these problems and stores better answers

What they gave is in ``measured``; its older files have other columns.
"""
