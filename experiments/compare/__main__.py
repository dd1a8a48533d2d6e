"""``python -m experiments.compare`` is ``schedsearch compare``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("compare")
