"""``python -m experiments.profile`` is ``schedsearch profile``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("profile")
