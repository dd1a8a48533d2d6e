"""Check what a schedule file claims: ``python -m experiments.check schedule=PATH`` (see README)."""

from experiments.config.command import command

main = command("check", "tasks.check")

if __name__ == "__main__":
    main()
