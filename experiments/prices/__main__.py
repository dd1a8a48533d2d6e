"""``python -m experiments.prices`` is ``schedsearch prices``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("prices")
