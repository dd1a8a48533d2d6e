"""The command ``python -m experiments.benchmarks.instances``."""

import sys

from experiments.benchmarks.instances.command import main

if __name__ == "__main__":
    sys.exit(main())
