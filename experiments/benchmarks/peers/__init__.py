"""Measure ours beside every peer in one run: ``python -m experiments.benchmarks.peers``.

Read `cases` (who is compared on what), `measuring` (both on one task, in turn), `torch_schedules` (the
schedules that torch ships), `recurrence` (PipeDream's as it is printed), `plots` (cost against size).
"""
