"""The command ``python -m experiments.benchmarks.frontier``; ``ablation``: what generators are worth."""

import sys

from experiments.benchmarks.frontier.ablation import main as ablation
from experiments.benchmarks.frontier.cases import BENCHMARK

if __name__ == "__main__":
    sys.exit(ablation(sys.argv[2:]) if sys.argv[1:2] == ["ablation"] else BENCHMARK.main())
