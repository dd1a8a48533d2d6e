"""Search a schedule and compute its time-energy frontier: ``python -m experiments.frontier`` (see README)."""

from experiments.config.command import run_command


def main() -> None:
    """Run the command."""
    run_command("frontier", task="experiments.tasks.frontier")


if __name__ == "__main__":
    main()
