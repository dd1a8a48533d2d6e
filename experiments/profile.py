"""Measure what blocks cost on this machine: ``python -m experiments.profile`` (see README)."""

from experiments.config.command import command

main = command("profile", "tasks.profile")

if __name__ == "__main__":
    main()
