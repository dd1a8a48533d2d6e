"""The command ``python -m experiments.benchmarks.server``."""

import sys

from experiments.benchmarks.server.cases import BENCHMARK

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
