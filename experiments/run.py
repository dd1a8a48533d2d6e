"""Search, tune, generate, run, compare, report: ``python -m experiments.run`` (see README)."""

from experiments.config.command import command

main = command("run", "tasks.run")

if __name__ == "__main__":
    main()
