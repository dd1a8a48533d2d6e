"""Entry points: read a config, call the layers below, save what they return.

Rooms in the order in which to read them; each imports only those above it:

    conf           the configs
    config         the border to Hydra: options as records, errors as lines
    steps          from options to a placement, a schedule and its clocks
    plan_steps     what a plan is made of where a profile has it, and PipeDream's plans
    run_steps      from a schedule and its clocks to scripts, a run and what it measured
    cluster_steps  from a cluster's options to simulations, decisions, their figures and files
    figures        sweeps that draw the papers' figures again
    report         a run as one HTML page
    reproductions  published tables, and ours beside them
    predictions    plans that were run: what is predicted of them, and how far off it is
    price_steps    tables and figures of spot prices, and of what strategies save
    tasks          what each command does
    benchmarks     what must be reached, measured case by case
    playground     schedules for the playground of the docs

Each command has a file here that hands its task to Hydra:

    search, frontier, run, profile, check, compare, predict, prices
    bubble_by_in_flight, bubble_by_memory, time_by_transfer
    plan, reproduce, cluster, cluster_study

One more makes a table of what they left:

    collect

All of them by one name, ``schedsearch COMMAND``:

    __main__
"""
