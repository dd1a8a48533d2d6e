"""Workers whose work cannot be had or kept."""

import queue

from served import profile_of, small_schedule

from runtime.server.workers import Task, Workers
from schedsearch.energy import Frontier
from schedsearch.schedule_file import schedule_to_dict


def test_a_job_that_cannot_be_loaded_fails_and_the_next_is_computed() -> None:
    kept: queue.Queue[tuple[str, Frontier | str]] = queue.Queue()

    def load(job: str) -> Task | None:
        if job == "torn":
            raise OSError("the row cannot be read\nagain")
        return None

    workers = Workers(1, load, lambda job, outcome: kept.put((job, outcome)))
    try:
        workers.submit("gone")
        workers.submit("torn")
        workers.submit("torn")
        line = "frontier: it cannot be kept (OSError: the row cannot be read); upload the profile again"
        for _ in range(2):
            assert kept.get(timeout=300) == ("torn", line)
    finally:
        workers.close()


def test_a_frontier_that_cannot_be_kept_fails_its_job() -> None:
    kept: queue.Queue[str] = queue.Queue()

    def keep(job: str, outcome: Frontier | str) -> None:
        if isinstance(outcome, Frontier):
            raise OSError("no space left")
        kept.put(outcome)

    schedule = small_schedule()
    content = schedule_to_dict(schedule)
    workers = Workers(1, lambda job: (content, profile_of(schedule.placement), 2), keep)
    try:
        workers.submit("a")
        assert kept.get(timeout=300).startswith("frontier: it cannot be kept (OSError: no space left);")
    finally:
        workers.close()
