"""``python -m experiments.cluster_study`` is ``schedsearch cluster_study``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("cluster_study")
