"""The command ``python -m experiments.benchmarks.search``."""

import sys

from experiments.benchmarks.search.cases import BENCHMARK

sys.exit(BENCHMARK.main())
