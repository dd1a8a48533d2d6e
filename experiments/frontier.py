"""Search a schedule and compute its time-energy frontier: ``python -m experiments.frontier`` (see README)."""

from experiments.command import run_command


def main() -> None:
    """Run the command."""
    run_command("frontier")


if __name__ == "__main__":
    main()
