"""Put schedules of one model side by side: ``python -m experiments.compare`` (see README)."""

from experiments.config.command import command

main = command("compare", "tasks.compare")

if __name__ == "__main__":
    main()
