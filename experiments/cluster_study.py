"""A cluster of planned models over months: ``python -m experiments.cluster_study``."""

from experiments.config.command import command

main = command("cluster_study", "tasks.cluster_study")

if __name__ == "__main__":
    main()
