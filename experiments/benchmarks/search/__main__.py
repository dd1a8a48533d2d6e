"""The command ``python -m experiments.benchmarks.search``.

``instances`` there is the instance library, ``ablation`` what strategies are worth.
"""

import sys

from experiments.benchmarks.instances.command import main as instances
from experiments.benchmarks.search.ablation import main as ablation
from experiments.benchmarks.search.cases import BENCHMARK

if __name__ == "__main__":
    match sys.argv[1:]:
        case ["instances", *rest]:
            sys.exit(instances(["search", *rest]))
        case ["ablation", *rest]:
            sys.exit(ablation(rest))
    sys.exit(BENCHMARK.main())
