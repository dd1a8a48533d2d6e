"""Check what a schedule file claims: ``python -m experiments.check schedule=PATH`` (see README)."""

from experiments.command import run_command


def main() -> None:
    """Run the command."""
    run_command("check")


if __name__ == "__main__":
    main()
