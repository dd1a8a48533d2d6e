"""Search a schedule for a placement: ``python -m experiments.search`` (see README)."""

from experiments.config.command import run_command


def main() -> None:
    """Run the command."""
    run_command("search", task="experiments.tasks.search")


if __name__ == "__main__":
    main()
