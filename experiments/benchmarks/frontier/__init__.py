"""Measure what the energy frontier must reach: ``python -m experiments.benchmarks.frontier`` (see README)."""
