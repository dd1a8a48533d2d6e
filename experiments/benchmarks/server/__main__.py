"""The command ``python -m experiments.benchmarks.server``."""

import sys

from experiments.benchmarks.server import main

sys.exit(main())
