"""Draw Tessel's Fig. 12, and ours beside it: ``python -m experiments.bubble_by_memory`` (see README)."""

from experiments.config.command import run_command


def main() -> None:
    """Run the command."""
    run_command("bubble_by_memory", task="experiments.figures.bubble_by_memory")


if __name__ == "__main__":
    main()
