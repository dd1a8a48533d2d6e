"""Predict plans that were run: ``python -m experiments.predict data=FOLDER`` (see README)."""

from experiments.config.command import command

main = command("predict", "tasks.predict")

if __name__ == "__main__":
    main()
