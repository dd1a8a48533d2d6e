"""Load the server of plans with requests: ``python -m experiments.benchmarks.server`` (see README)."""
