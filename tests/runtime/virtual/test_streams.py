"""Streams, events and work queues: small cases by hand."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial

import pytest

from runtime.virtual.streams import Host, Meeting, Operation, StuckError, VirtualEvent, VirtualMachine


def kernel(
    machine: VirtualMachine, stream: int, duration: float, what: str = "a kernel", device: int = 0
) -> VirtualEvent:
    return machine.issue(Operation(device, stream, what, partial(operator.add, duration)))


def meet(machine: VirtualMachine, device: int, stream: int, *chains: Sequence[Meeting]) -> VirtualEvent:
    return machine.issue(Operation(device, stream, chains[0][0].what, chains=chains))


def test_streams_are_in_order_and_side_by_side() -> None:
    machine, ends = VirtualMachine(), []

    def host() -> Host:
        ends.extend([kernel(machine, 0, 2), kernel(machine, 0, 3), kernel(machine, 1, 4)])
        yield from ()

    assert machine.run([host()]) == 5
    assert [end.time for end in ends] == [2, 5, 4]


def test_an_event_holds_up_only_the_stream_that_waits_for_it() -> None:
    """What a stream is given after an event was recorded is not waited for."""
    machine, ends = VirtualMachine(), []

    def host() -> Host:
        kernel(machine, 0, 2)
        event = machine.record(0, 0)
        kernel(machine, 0, 9)
        machine.wait(0, 1, event)
        ends.extend([kernel(machine, 1, 1), kernel(machine, 2, 1)])
        yield event
        ends.append(kernel(machine, 3, 1))

    assert machine.run([host()]) == 11
    assert [end.time for end in ends] == [3, 1, 3]


@pytest.mark.parametrize(("num_queues", "end"), [(None, 1.0), (4, 1.0), (1, 6.0)])
def test_a_wait_holds_up_what_is_behind_it_in_its_queue(num_queues: int | None, end: float) -> None:
    """Stream 1 waits for the kernel of stream 0; stream 2, issued later, waits for nothing."""
    machine, ends = VirtualMachine(num_queues), []

    def host() -> Host:
        machine.wait(0, 1, kernel(machine, 0, 5))
        ends.append(kernel(machine, 2, 1))
        yield from ()

    machine.run([host()])
    assert [each.time for each in ends] == [end]


@pytest.mark.parametrize(("num_queues", "end"), [(None, 2.0), (2, 40.0 + 2.0), (1, 40.0 + 2.0)])
def test_the_record_of_an_event_holds_up_its_queue_and_a_kernel_under_way_does_not(
    num_queues: int | None, end: float
) -> None:
    """Streams 0 and 2 share a queue where there are two."""
    machine, ends = VirtualMachine(num_queues), []

    def host(records: bool) -> Host:
        kernel(machine, 0, 40)
        if records:
            machine.record(0, 0)
        ends.append(kernel(machine, 2, 2))
        yield from ()

    machine.run([host(records=True)])
    assert [each.time for each in ends] == [end]
    machine, ends = VirtualMachine(num_queues), []
    machine.run([host(records=False)])
    assert [each.time for each in ends] == [2.0]


def test_partners_end_together_and_one_that_has_begun_holds_up_no_queue() -> None:
    machine, ends = VirtualMachine(num_queues=1), []
    message = Meeting("the message", 2, 3.0)

    def receiver() -> Host:
        ends.extend([meet(machine, 0, 1, [message]), kernel(machine, 0, 1)])
        yield from ()

    def sender() -> Host:
        kernel(machine, 0, 4, device=1)
        machine.wait(1, 1, machine.record(1, 0))
        ends.append(meet(machine, 1, 1, [message]))
        yield from ()

    assert machine.run([receiver(), sender()]) == 7
    assert [end.time for end in ends] == [7, 1, 7]
    assert message.start == 4


@pytest.mark.parametrize(("comes", "left", "arrived"), [(0.0, 3.0, 3.0), (1.0, 3.0, 3.0), (8.0, 3.0, 8.0)])
def test_a_small_message_leaves_without_its_receiver(comes: float, left: float, arrived: float) -> None:
    machine, ends = VirtualMachine(), []
    message = Meeting("the message", 2, 3.0, leaves_early=0)

    def sender() -> Host:
        ends.append(meet(machine, 0, 1, [message]))
        yield from ()

    def receiver() -> Host:
        kernel(machine, 1, comes, device=1)
        ends.append(meet(machine, 1, 1, [message]))
        yield from ()

    machine.run([sender(), receiver()])
    assert [end.time for end in ends] == [left, arrived]


def test_calls_of_a_group_move_side_by_side_but_in_order_to_one_peer() -> None:
    machine, ends = VirtualMachine(), []
    first, second, third = (Meeting(name, 2, 2.0) for name in ("first", "second", "third"))

    def group() -> Host:
        ends.append(meet(machine, 0, 1, [first, second], [third]))
        yield from ()

    def peer() -> Host:
        ends.extend([meet(machine, 1, 1, [first]), meet(machine, 1, 1, [second])])
        yield from ()

    def other_peer() -> Host:
        ends.append(meet(machine, 2, 1, [third]))
        yield from ()

    machine.run([group(), peer(), other_peer()])
    assert [end.time for end in ends] == [4, 2, 4, 2]


def test_who_waits_for_whom_is_told() -> None:
    """Each sends before it receives, on one stream each."""
    machine = VirtualMachine()
    there, back = Meeting("there", 2, 1.0), Meeting("back", 2, 1.0)

    def host(device: int, *order: Meeting) -> Host:
        for each in order:
            meet(machine, device, 1, [each])
        yield from ()

    with pytest.raises(StuckError) as found:
        machine.run([host(0, there, back), host(1, back, there)])
    assert str(found.value).splitlines() == [
        "GPU 0: there has begun and does not end",
        "GPU 1: back has begun and does not end",
        "GPU 0: back waits for there",
        "GPU 1: there waits for back",
    ]


def test_a_host_that_waits_for_what_it_has_not_issued_is_stuck() -> None:
    def host() -> Host:
        yield VirtualEvent("nothing")

    with pytest.raises(StuckError):
        VirtualMachine().run([host()])
