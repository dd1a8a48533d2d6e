"""Entry points: read a config, call the layers below, save the results.

A room is a subject: its options, its steps, its tables and drawings, its report, and its ``task``, which is
what the command of its name does. ``python -m experiments.search`` is ``schedsearch search``. Rooms in the
order in which to read them; each imports only those above it:

    conf           where output goes
    report         what a command has found, written and printed: tables, pages, and the drawings in them
    config         the border to Hydra: commands and options as records, errors as lines
    search         a placement and a schedule for it; what the rooms below begin with
    compare        schedules of one model side by side
    check          each claim of a schedule file
    figures        sweeps that draw the papers' figures again
    frontier       clocks for a schedule
    run            scripts, a run and what it measured
    profile        what blocks cost on this machine
    profile_rates  what a machine reaches by shape
    predict        plans and runs that were measured: what is predicted, and how far off it is
    plan           plans of a model on a cluster
    layout         the best division of a model's layers, for training frameworks
    replay         from a trace: where a run's time goes, and better orders
    replan         ways to go on when a device is lost or slow
    cluster        many jobs on GPUs of several types
    prices         what a job saves by moving among spot prices
    reproduce      published tables, and ours beside them
    benchmarks     what must be reached, measured case by case

One file makes a table of what they left, one runs a sweep under Slurm, one ends a sweep with its table and a
picture, another runs all commands by one name, ``schedsearch COMMAND``:

    collect, slurm, sweep, __main__
"""
