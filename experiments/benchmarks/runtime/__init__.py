"""Measure the runtime: ``python -m experiments.benchmarks.runtime`` (see README)."""
