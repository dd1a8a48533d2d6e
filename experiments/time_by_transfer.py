"""Draw Tessel's Fig. 17 for any transfer time: ``python -m experiments.time_by_transfer`` (see README)."""

from experiments.config.command import command

main = command("time_by_transfer", "figures.time_by_transfer")

if __name__ == "__main__":
    main()
