"""Benchmarks: what must be reached, measured case by case, as commands of their own."""
