"""The command ``python -m experiments.benchmarks.cluster``."""

import sys

from experiments.benchmarks.cluster.cases import BENCHMARK

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
