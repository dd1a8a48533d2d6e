"""Measure what blocks cost on this machine: ``python -m experiments.profile`` (see README)."""

from experiments.command import run_command


def main() -> None:
    """Run the command."""
    run_command("profile")


if __name__ == "__main__":
    main()
