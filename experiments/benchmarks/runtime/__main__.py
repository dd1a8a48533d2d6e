"""The command ``python -m experiments.benchmarks.runtime``."""

import sys

from experiments.benchmarks.runtime.cases import BENCHMARK

sys.exit(BENCHMARK.main())
