"""Draw Tessel's Fig. 11, and ours beside it: ``python -m experiments.bubble_by_in_flight`` (see README)."""

from experiments.config.command import command

main = command("bubble_by_in_flight", "figures.bubble_by_in_flight")

if __name__ == "__main__":
    main()
