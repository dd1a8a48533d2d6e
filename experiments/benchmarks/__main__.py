"""The command ``python -m experiments.benchmarks``: a group of cases, or the instance library."""

import sys

from experiments.benchmarks.command import main
from experiments.benchmarks.library.verbs import main as instances

if __name__ == "__main__":
    sys.exit(instances(sys.argv[2:]) if sys.argv[1:2] == ["instances"] else main())
