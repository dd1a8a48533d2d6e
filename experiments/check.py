"""Check what a schedule file claims: ``python -m experiments.check schedule=PATH`` (see README)."""

from experiments.config.command import run_command


def main() -> None:
    """Run the command."""
    run_command("check", task="experiments.tasks.check")


if __name__ == "__main__":
    main()
