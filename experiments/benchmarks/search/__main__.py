"""The command ``python -m experiments.benchmarks.search``; ``instances`` there is the instance library."""

import sys

from experiments.benchmarks.instances.command import main as instances
from experiments.benchmarks.search.cases import BENCHMARK

if sys.argv[1:2] == ["instances"]:
    sys.exit(instances(["search", *sys.argv[2:]]))
sys.exit(BENCHMARK.main())
