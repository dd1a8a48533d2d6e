"""Load the server of plans with requests: ``python -m experiments.benchmarks.server`` (see README).

Read `cases` (how many jobs and messages, what must be reached) and `measuring` (latency, CPU, losses).
"""
