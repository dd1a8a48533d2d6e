"""The command ``python -m experiments.benchmarks.frontier``."""

import sys

from experiments.benchmarks.frontier import main

sys.exit(main())
