"""The command ``python -m experiments.benchmarks.frontier``."""

import sys

from experiments.benchmarks.frontier.cases import BENCHMARK

sys.exit(BENCHMARK.main())
