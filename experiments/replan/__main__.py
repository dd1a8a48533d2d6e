"""``python -m experiments.replan`` is ``schedsearch replan``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("replan")
