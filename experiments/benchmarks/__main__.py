"""The command ``python -m experiments.benchmarks``: a group of cases, or the instance library."""

import sys

from experiments.benchmarks.best_known.verbs import main as instances
from experiments.benchmarks.command import main

if __name__ == "__main__":
    sys.exit(instances(sys.argv[2:]) if sys.argv[1:2] == ["instances"] else main())
