"""Search, tune, generate, run, compare, report: ``python -m experiments.run`` (see README)."""

from experiments.config.command import run_command


def main() -> None:
    """Run the command."""
    run_command("run", task="experiments.tasks.run")


if __name__ == "__main__":
    main()
