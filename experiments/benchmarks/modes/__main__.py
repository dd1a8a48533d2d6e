"""The command ``python -m experiments.benchmarks.modes``."""

import sys

from experiments.benchmarks.modes.cases import BENCHMARK

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
