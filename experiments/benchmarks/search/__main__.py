"""The command ``python -m experiments.benchmarks.search``."""

import sys

from experiments.benchmarks.search import main

sys.exit(main())
