"""The command ``python -m experiments.benchmarks.peers``."""

import sys

from experiments.benchmarks.peers.cases import BENCHMARK

sys.exit(BENCHMARK.main())
