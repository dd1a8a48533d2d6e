"""The command ``python -m experiments.benchmarks.unequal``."""

import sys

from experiments.benchmarks.unequal.cases import BENCHMARK

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
