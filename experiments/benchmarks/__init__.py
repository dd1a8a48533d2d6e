"""Benchmarks: what must be reached, measured case by case, as commands of their own.

Each of `search`, `frontier`, `planners`, `cluster`, `runtime` and `server` has its cases with what they must
reach, and how they are measured; `peers` has small tasks on which ours stands beside every peer. They share
`benchmark_command` (choose cases, measure, write), `results` (rows, and their file), `comparison` (ours over
a peer's) and `timing` (CPU seconds); what they gave is in ``measured``. `instances` has named placements with
the best answers known.
"""
