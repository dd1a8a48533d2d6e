"""The command ``python -m experiments.benchmarks.instances``."""

import sys

from experiments.benchmarks.instances.command import main

sys.exit(main())
