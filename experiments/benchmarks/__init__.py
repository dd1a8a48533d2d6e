"""Benchmarks: what must be reached, measured case by case, as commands of their own.

A benchmark is data: groups of cases, each with its name, what it must reach, what it lacks here and the
function that measures it. One driver runs them all. Read `benchmark_command` (chooses cases, measures them,
goes on after an interruption), `results` (cases, rows, and their files), `comparison` (ours over a peer's,
and packages that are missing) and `timing` (CPU seconds); then the rooms `search`, `modes`, `unequal`,
`layouts`, `frontier`, `planners`, `cluster`, `runtime` and `server`, and `peers`, which has small tasks on
which ours stands beside every peer. What they gave is in ``measured``. `instances` has named placements with
the best answers known.
"""
