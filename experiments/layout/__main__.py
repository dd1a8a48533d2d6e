"""``python -m experiments.layout`` is ``schedsearch layout``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("layout")
