"""``python -m experiments.frontier`` is ``schedsearch frontier``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("frontier")
