"""The command ``python -m experiments.benchmarks.cluster``."""

import sys

from experiments.benchmarks.cluster.cases import BENCHMARK

sys.exit(BENCHMARK.main())
