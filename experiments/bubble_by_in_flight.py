"""Draw Tessel's Fig. 11, and ours beside it: ``python -m experiments.bubble_by_in_flight`` (see README)."""

from experiments.config.command import run_command


def main() -> None:
    """Run the command."""
    run_command("bubble_by_in_flight", task="experiments.figures.bubble_by_in_flight")


if __name__ == "__main__":
    main()
