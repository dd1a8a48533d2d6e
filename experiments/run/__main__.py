"""``python -m experiments.run`` is ``schedsearch run``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("run")
