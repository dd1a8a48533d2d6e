"""``python -m experiments.search`` is ``schedsearch search``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("search")
