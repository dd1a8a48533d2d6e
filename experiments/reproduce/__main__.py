"""``python -m experiments.reproduce`` is ``schedsearch reproduce``."""

from experiments.config.command import run

if __name__ == "__main__":
    run("reproduce")
