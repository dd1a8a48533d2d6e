"""Storms of messages to a server of plans: senders that keep their connections, and what is lost."""

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from served import profile_of, registration, small_schedule, upload_of

from experiments.benchmarks.measures.server import DEGREES, Sender


@dataclass
class Sent:
    """By job and accelerator the last degree that was said, how many messages, and answers that go back."""

    last: dict[tuple[str, int], float] = field(default_factory=dict)
    number: int = 0
    faults: int = 0


def register(sender: Sender) -> str:
    schedule = small_schedule()
    job = str(sender.ask("POST", "/jobs", registration(schedule))["id"])
    sender.ask("POST", f"/jobs/{job}/profile", upload_of(profile_of(schedule.placement)))
    return job


def ready_jobs(port: int, number: int) -> list[str]:
    """Register jobs and wait until all have their frontiers."""
    sender = Sender(port)
    jobs = [register(sender) for _ in range(number)]
    for job in jobs:
        wait_until_ready(sender, job)
    return jobs


def wait_until_ready(sender: Sender, job: str) -> None:
    while (state := sender.ask("GET", f"/jobs/{job}")["state"]) != "ready":
        assert state != "failed"
        time.sleep(0.02)


def storm(port: int, jobs: Sequence[str], number: int, num_senders: int, seed: int = 0) -> Sent:
    """Tell of stragglers of all jobs, from several senders at once, each of an accelerator of its own."""
    sent = Sent()

    def send(accelerator: int) -> None:
        source, sender = random.Random(seed * 1000 + accelerator), Sender(port)
        versions: dict[str, int] = {}
        for _ in range(number // num_senders):
            job, degree = source.choice(jobs), source.choice(DEGREES)
            body = {"id": accelerator, "delay_s": 0, "degree": degree}
            version = sender.ask("POST", f"/jobs/{job}/straggler", body)["version"]
            sent.faults += version < versions.get(job, 1)
            versions[job] = version
            sent.last[job, accelerator] = degree
            sent.number += 1

    with ThreadPoolExecutor(num_senders) as senders:
        for done in [senders.submit(send, accelerator) for accelerator in range(num_senders)]:
            done.result()
    return sent


def lost(port: int, jobs: Sequence[str], sent: Sent) -> list[str]:
    """Return the jobs that are not there, or do not run the plan for the last words on their accelerators."""
    sender, wrong = Sender(port), list[str]()
    there = {job["id"] for job in sender.ask("GET", "/jobs?limit=1000")["jobs"]}
    for job in jobs:
        if job not in there:
            wrong.append(job)
            continue
        wait_until_ready(sender, job)
        worst = max((degree for (each, _), degree in sent.last.items() if each == job), default=1.0)
        shortest_ms = min(plan["time_ms"] for plan in sender.ask("GET", f"/jobs/{job}/frontier")["plans"])
        right = sender.ask("GET", f"/jobs/{job}/plan?deadline_ms={worst * shortest_ms!r}")["time_ms"]
        if sender.ask("GET", f"/jobs/{job}/plan")["time_ms"] != right:
            wrong.append(job)
    return wrong


@contextmanager
def busy(port: int) -> Iterator[list[str]]:
    """Register jobs, one after the other, meanwhile."""
    is_over, made = False, list[str]()

    def go_on() -> None:
        sender = Sender(port)
        while not is_over:
            made.append(register(sender))

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(go_on)
        try:
            yield made
        finally:
            is_over = True
            running.result()
