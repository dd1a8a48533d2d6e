"""The command ``python -m experiments.benchmarks.runtime``."""

import sys

from experiments.benchmarks.runtime import main

sys.exit(main())
