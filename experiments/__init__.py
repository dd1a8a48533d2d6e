"""Entry points: read a config, call the layers below, save the results.

A room is a subject: its options, its steps, its tables and drawings, its report, and its ``task``, which the
command of its name runs. ``python -m experiments.search`` is ``schedsearch search``. Rooms in the
order in which to read them; each imports only those above it:

    conf           where output goes
    report         results of a command, written and printed: tables, pages, and the drawings in them
    config         the border to Hydra: commands and options as records, errors as lines
    search         a placement and a schedule for it; the rooms below begin with them
    compare        schedules of one model side by side
    check          each claim of a schedule file
    frontier       clocks for a schedule
    run            scripts, a run and its measurement
    profile        costs of blocks on this machine
    profile_rates  rates of a machine by shape
    predict        predictions of measured plans and runs, and their errors
    plan           plans of a model on a cluster
    layout         the best division of a model's layers, for training frameworks
    replay         from a trace: where a run's time goes, and better orders
    replan         ways to go on when a device is lost or slow
    cluster        many jobs on GPUs of several types
    prices         savings of a job that moves among spot prices
    reproduce      published tables, and ours beside them
    benchmarks     cases to measure, and their targets

One file makes a table of their records, one runs a sweep under Slurm, one ends a sweep with its table and a
picture, another runs all commands by one name, ``schedsearch COMMAND``:

    collect, slurm, sweep, __main__
"""
