"""Measure what the search must reach: ``python -m experiments.benchmarks.search`` (see README)."""
