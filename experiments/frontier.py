"""Search a schedule and compute its time-energy frontier: ``python -m experiments.frontier`` (see README)."""

from experiments.config.command import command

main = command("frontier", "tasks.frontier")

if __name__ == "__main__":
    main()
