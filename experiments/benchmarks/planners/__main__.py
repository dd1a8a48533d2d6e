"""The command ``python -m experiments.benchmarks.planners``."""

import sys

from experiments.benchmarks.planners.cases import BENCHMARK

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
