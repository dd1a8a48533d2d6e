"""Draw Tessel's Fig. 12, and ours beside it: ``python -m experiments.bubble_by_memory`` (see README)."""

from experiments.config.command import command

main = command("bubble_by_memory", "figures.bubble_by_memory")

if __name__ == "__main__":
    main()
