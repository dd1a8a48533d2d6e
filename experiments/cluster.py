"""Simulate a cluster under a policy, or decide once: ``python -m experiments.cluster`` (see README)."""

from experiments.config.command import command

main = command("cluster", "tasks.cluster")

if __name__ == "__main__":
    main()
