"""``python -m experiments.replay`` is ``schedsearch replay``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("replay")
