"""The command ``python -m experiments.benchmarks.layouts``."""

import sys

from experiments.benchmarks.layouts.cases import BENCHMARK

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
