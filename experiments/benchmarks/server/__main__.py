"""The command ``python -m experiments.benchmarks.server``."""

import sys

from experiments.benchmarks.server.cases import BENCHMARK

sys.exit(BENCHMARK.main())
