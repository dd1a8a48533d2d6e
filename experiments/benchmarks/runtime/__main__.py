"""The command ``python -m experiments.benchmarks.runtime``."""

import sys

from experiments.benchmarks.runtime.cases import BENCHMARK

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
