"""Streams, events and work queues: small cases by hand."""

from __future__ import annotations

import pytest

from runtime.virtual.streams import Event, VirtualMachine


def kernel(machine: VirtualMachine, stream: int, duration: float, device: int = 0) -> Event:
    return machine.issue(device, stream, Event("a kernel", duration=duration)).end


def meet(machine: VirtualMachine, device: int, stream: int, meeting: Event) -> Event:
    operation = machine.issue(device, stream, Event(meeting.what, [meeting]))
    meeting.add(operation.begin)
    return operation.end


def test_streams_are_in_order_and_side_by_side() -> None:
    machine = VirtualMachine()
    ends = [kernel(machine, 0, 2), kernel(machine, 0, 3), kernel(machine, 1, 4)]
    assert machine.run() == 5
    assert [end.time for end in ends] == [2, 5, 4]


def test_an_event_holds_up_only_the_stream_that_waits_for_it() -> None:
    """What a stream is given after an event was recorded is not waited for."""
    machine = VirtualMachine()
    kernel(machine, 0, 2)
    event = machine.record(0, 0)
    kernel(machine, 0, 9)
    machine.wait(0, 1, event)
    ends = [kernel(machine, 1, 1), kernel(machine, 2, 1)]
    machine.hold_host(0, event)
    ends.append(kernel(machine, 3, 1))
    assert machine.run() == 11
    assert [end.time for end in ends] == [3, 1, 3]


@pytest.mark.parametrize(("num_queues", "end"), [(None, 1.0), (4, 1.0), (1, 6.0)])
def test_a_wait_holds_up_what_is_behind_it_in_its_queue(num_queues: int | None, end: float) -> None:
    """Stream 1 waits for the kernel of stream 0; stream 2, issued later, waits for nothing."""
    machine = VirtualMachine(num_queues)
    machine.wait(0, 1, kernel(machine, 0, 5))
    other = kernel(machine, 2, 1)
    machine.run()
    assert other.time == end


@pytest.mark.parametrize(("num_queues", "end"), [(None, 2.0), (2, 40.0 + 2.0), (1, 40.0 + 2.0)])
@pytest.mark.parametrize("records", [True, False])
def test_the_record_of_an_event_holds_up_its_queue_and_a_kernel_under_way_does_not(
    num_queues: int | None, end: float, records: bool
) -> None:
    """Streams 0 and 2 share a queue where there are two."""
    machine = VirtualMachine(num_queues)
    kernel(machine, 0, 40)
    if records:
        machine.record(0, 0)
    other = kernel(machine, 2, 2)
    machine.run()
    assert other.time == (end if records else 2.0)


def test_partners_end_together_and_one_that_has_begun_holds_up_no_queue() -> None:
    machine = VirtualMachine(num_queues=1)
    message = Event("the message", duration=3.0, num_missing=2)
    ends = [meet(machine, 0, 1, message), kernel(machine, 0, 1)]
    kernel(machine, 0, 4, device=1)
    machine.wait(1, 1, machine.record(1, 0))
    ends.append(meet(machine, 1, 1, message))
    assert machine.run() == 7
    assert [end.time for end in ends] == [7, 1, 7]
    assert message.since == 4


def test_who_waits_for_whom_is_told() -> None:
    """Each sends before it receives, on one stream each."""
    machine = VirtualMachine()
    there, back = (Event(name, duration=1.0, num_missing=2) for name in ("there", "back"))
    for device, order in enumerate([(there, back), (back, there)]):
        for each in order:
            meet(machine, device, 1, each)
    machine.run()
    assert machine.standing() == [
        "GPU 0: there has begun and does not end",
        "GPU 1: back has begun and does not end",
        "GPU 0: back waits for there",
        "GPU 1: there waits for back",
    ]
