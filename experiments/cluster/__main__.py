"""``python -m experiments.cluster`` is ``schedsearch cluster``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("cluster")
