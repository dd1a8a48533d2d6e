"""The command ``python -m experiments.benchmarks.search``.

``instances`` there is the instance library, ``ablation`` what strategies are worth.
"""

import sys

from experiments.benchmarks.instances.command import main as instances
from experiments.benchmarks.search.ablation import main as ablation
from experiments.benchmarks.search.cases import BENCHMARK

if sys.argv[1:2] == ["instances"]:
    sys.exit(instances(["search", *sys.argv[2:]]))
if sys.argv[1:2] == ["ablation"]:
    sys.exit(ablation(sys.argv[2:]))
sys.exit(BENCHMARK.main())
