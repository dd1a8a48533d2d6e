"""``python -m experiments.plan`` is ``schedsearch plan``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("plan")
