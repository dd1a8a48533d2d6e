"""Train where spot prices are low: ``python -m experiments.prices data=FOLDER`` (see README)."""

from experiments.config.command import command

main = command("prices", "tasks.prices")

if __name__ == "__main__":
    main()
