"""Reproduce a published table: ``python -m experiments.reproduce`` (see README)."""

from experiments.config.command import command

main = command("reproduce", "tasks.reproduce", items="reproductions.catalogue")

if __name__ == "__main__":
    main()
