"""Plan a model on a cluster: ``python -m experiments.plan`` (see README)."""

from experiments.config.command import command

main = command("plan", "tasks.plan")

if __name__ == "__main__":
    main()
