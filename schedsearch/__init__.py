"""When each block runs, and how fast: search, bounds, validation and energy of schedules. Knows no torch.

Rooms and files in the order in which to read them; each imports only those above it:

    schedule        the start of every block, for a fixed number of micro-batches
    repetend        the pattern that repeats every period, and its extension to any number of micro-batches
    picture         a schedule as text
    validate        the rules, checked without knowing how a schedule was found
    metrics         bubble rate, memory, latency
    bounds          what no schedule can beat, with proofs
    solver          one question to Z3 or CP-SAT: is there a repetend of this period?
    state_space     exact answers by dynamic programming
    baselines       schedules made by hand
    improve         large-neighbourhood search of a finite schedule
    modulo          the search for a repetend, and for the schedule around it
    tessel          Tessel's own search, beside ours
    methods         the searches by name, with one question and one answer
    cache           results kept on disk
    certificate     what a search proved, written down and checked again without it
    schedule_file   the file form of all this
    energy          the time-energy frontier of a schedule
    figures         pictures of schedules and frontiers
    comparison      schedules of one model side by side
"""
