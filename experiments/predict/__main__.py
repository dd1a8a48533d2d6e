"""``python -m experiments.predict`` is ``schedsearch predict``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("predict")
