"""Random sequences of messages and waits against all that was ever said, gone through anew each time."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served import profile_of, registration, small_schedule, upload_of

from placements.shapes import v_shape
from runtime.server.bodies import (
    Deployed,
    DeployedPlanAnswer,
    NotYetError,
    ProfileUpload,
    Registration,
    StragglerMessage,
)
from runtime.server.service import Service
from schedsearch.energy import compute_frontier

FRONTIER = compute_frontier(small_schedule(), profile_of(v_shape(2)), num_plans=20)
NAMES = ("a", "b", "c")


@dataclass
class Now:
    s: float = 0.0


@dataclass(frozen=True)
class Said:
    sent_s: float
    due_s: float
    degree: float


@dataclass
class SlowModel:
    """Keep every message; an accelerator's latest message withdraws earlier ones that are not due yet."""

    said: dict[str, list[Said]] = field(default_factory=lambda: {name: [] for name in NAMES})

    def degree(self, now_s: float) -> float:
        degrees = [1.0]
        for messages in self.said.values():
            heeded = [
                message.degree
                for i, message in enumerate(messages)
                if message.due_s <= now_s
                and all(later.sent_s >= message.due_s for later in messages[i + 1 :])
            ]
            degrees += heeded[-1:]
        return max(degrees)

    def time_ms(self, now_s: float) -> float:
        """The slowest plan that does not end after the straggler."""
        deadline_ms = self.degree(now_s) * FRONTIER.plans[0].time_ms * (1 + 1e-9)
        return max(plan.time_ms for plan in FRONTIER.plans if plan.time_ms <= deadline_ms)


@pytest.fixture(scope="module")
def now() -> Now:
    return Now()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, now: Now) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("server") / "jobs", now_s=lambda: now.s)
    yield service
    service.close()


@pytest.fixture(scope="module")
def job(service: Service) -> str:
    job = service.register(Registration.model_validate(registration())).id
    service.upload(job, ProfileUpload.model_validate(upload_of(profile_of(v_shape(2)))))
    while service.status(job).state != "ready":
        time.sleep(0.005)
    return job


messages = st.builds(
    StragglerMessage,
    id=st.sampled_from(NAMES),
    delay_s=st.sampled_from([0, 0, 1, 2]),
    degree=st.sampled_from([1, 1, 1.1, 1.3, 1.5, 9]),
)
steps = st.lists(st.one_of(messages, st.sampled_from([0.5, 1, 1])), max_size=12)


@given(steps)
@settings(max_examples=60, deadline=None)
def test_the_worst_straggler_in_force_decides(
    service: Service, job: str, now: Now, sequence: list[object]
) -> None:
    for name in NAMES:
        service.set_straggler(job, StragglerMessage(id=name, degree=1))
    before = service.deployed(job)
    model, version, running_ms = SlowModel(), before.version, before.time_ms
    assert running_ms == FRONTIER.plans[0].time_ms
    for step in sequence:
        if isinstance(step, StragglerMessage):
            model.said[step.id].append(Said(now.s, now.s + step.delay_s, step.degree))
            answer: Deployed | DeployedPlanAnswer | None = service.set_straggler(job, step)
        else:
            assert isinstance(step, (int, float))
            now.s += step
            answer = service.deployed(job)
        assert answer is not None
        if model.time_ms(now.s) != running_ms:
            version, running_ms = version + 1, model.time_ms(now.s)
        assert (answer.version, answer.time_ms) == (version, running_ms)
        assert service.deployed(job, newer_than=version) is None


def test_what_is_due_before_the_frontier_is_there_is_not_due_again(service: Service, now: Now) -> None:
    """Else whoever waits for the first plan would be woken for it all the time."""
    job = service.register(Registration.model_validate(registration())).id
    service.set_straggler(job, StragglerMessage(id="a", delay_s=5, degree=1.3))
    assert service.due_in_s(job) == 5
    now.s += 5
    with pytest.raises(NotYetError):
        service.deployed(job)
    assert service.due_in_s(job) == math.inf
