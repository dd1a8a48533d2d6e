"""Search a schedule for a placement: ``python -m experiments.search`` (see README)."""

from experiments.config.command import command

main = command("search", "tasks.search")

if __name__ == "__main__":
    main()
