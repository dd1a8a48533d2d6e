"""Measure what blocks cost on this machine: ``python -m experiments.profile`` (see README)."""

from experiments.config.command import run_command


def main() -> None:
    """Run the command."""
    run_command("profile", task="experiments.tasks.profile")


if __name__ == "__main__":
    main()
