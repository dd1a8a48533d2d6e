"""The command ``python -m experiments.benchmarks.peers``."""

import sys

from experiments.benchmarks.peers.cases import BENCHMARK

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
