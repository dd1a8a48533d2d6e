"""Published shops, each job a micro-batch."""

from __future__ import annotations

from pathlib import Path

from placements import Block, Kind, Placement
from schedsearch.core.problem import Problem
from schedsearch.unequal.micro_batches import MicroBatchRow, unequal_batch


def published_shop(name: str) -> Problem:
    """Return a published shop of ``shops.csv`` as a batch whose micro-batches are its jobs.

    Job shops are of Fisher and Thompson (1963) and Lawrence (1984), flow shops of Carlier (1978) and Taillard
    (1993). A chain of machines has a block for each; where jobs go different ways, one for each machine and
    place.
    """
    lines = Path(__file__).with_name("shops.csv").read_text(encoding="utf-8").splitlines()
    numbers = [[*map(int, line.partition(",")[2].split())] for line in lines if line.startswith(f"{name},")]
    jobs = [list(zip(job[::2], map(float, job[1::2]), strict=True)) for job in numbers]
    places, machines = len(jobs[0]), 1 + max(machine for job in jobs for machine, _ in job)
    names = [
        [f"F{place}_{machine}" for machine in sorted({job[place][0] for job in jobs})]
        for place in range(places)
    ]
    blocks = tuple(
        Block(block, Kind.F, (int(block.rpartition("_")[2]),), 1, after=(*names[place - 1],) if place else ())
        for place, here in enumerate(names)
        for block in here
    )
    rows = [
        MicroBatchRow(n, block, job[place][1] if block == f"F{place}_{job[place][0]}" else 0.0)
        for n, job in enumerate(jobs)
        for place in range(places)
        for block in names[place]
    ]
    return unequal_batch(Placement(name, machines, blocks), rows)
