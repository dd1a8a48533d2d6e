"""The command ``python -m experiments.benchmarks.planners``."""

import sys

from experiments.benchmarks.planners.cases import BENCHMARK

sys.exit(BENCHMARK.main())
