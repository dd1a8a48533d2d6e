"""``python -m experiments.check`` is ``schedsearch check``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("check")
