"""Tensors that go in parts from team to team: the same bits, fewer bytes, proved like all else."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from small_runs import chain_of, compared, comparison_of, require_equal, trained
from torch import Tensor

from placements import Placement
from runtime.models import ModelOptions
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Instruction, Programs, Receive, Run, Send
from runtime.program.lower import lower, scattered, scattered_in_words
from runtime.program.prefetch import prefetch_receives
from runtime.transport.in_memory import Network
from schedsearch.baselines import gpipe

OPTIONS = ModelOptions(
    "gpt", hidden_size=8, sequence_length=5, micro_batch_size=4, num_layers=4, num_heads=4, seed=3
)


TWO_TEAMS = chain_of(((0, 1), 1), ((2, 3), 1))
GROUPS = chain_of(((0, 1, 2, 3), 2), ((4, 5, 6, 7), 2))
FROM_ONE = chain_of(((0,), 1), ((1, 2, 3), 1))  # 160 elements in three parts
TO_TENSOR = chain_of(((0, 1), 2), ((2, 3), 1))
SHARED = chain_of(((0, 1), 1), ((1, 2), 1), ((3, 4), 1))
FEWER = {
    "two": (TWO_TEAMS, 2),
    "groups": (GROUPS, 2),
    "to_tensor": (TO_TENSOR, None),
    "from_one": (FROM_ONE, None),
    "shared": (SHARED, None),
}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes of each message of runs in this process."""
    sizes: list[int] = []
    send = Network.send

    def counted(self: Network, tensor: Tensor, channel: tuple[int, int]) -> object:
        sizes.append(tensor.nbytes)
        return send(self, tensor, channel)

    monkeypatch.setattr(Network, "send", counted)
    return sizes


@pytest.mark.parametrize(("placement", "times_fewer"), FEWER.values(), ids=FEWER)
def test_a_run_in_parts_has_the_same_bits_and_sends_less(
    placement: Placement, times_fewer: int | None, sent: list[int]
) -> None:
    """Of teams of the same size, by their size."""
    programs = lower(gpipe(placement, 3))
    whole = trained(check(programs), OPTIONS)
    num_bytes, num_messages = sum(sent), len(sent)
    sent.clear()
    parts = trained(check(scattered(programs, "always")), OPTIONS)
    require_equal(comparison_of(parts))
    assert parts.comparison == whole.comparison, "the same distance from the model in one piece"
    assert parts.losses == whole.losses
    assert len(sent) == num_messages
    if times_fewer is not None:
        assert sum(sent) * times_fewer == num_bytes
    else:
        assert sum(sent) < num_bytes


def test_processes_gather_what_they_receive() -> None:
    """Over gloo, with receives posted early and with the library's own sums."""
    programs = check(prefetch_receives(scattered(lower(gpipe(TWO_TEAMS, 3)), "always"), 1))
    require_equal(compared(programs, OPTIONS, "fork"))
    assert comparison_of(trained(programs, OPTIONS, launcher="fork", exact=False)).is_equal


def test_by_itself_tensors_go_in_parts_from_node_to_node_alone() -> None:
    stages = (((0, 1), 1), ((2, 3), 1), ((4, 5), 1))
    for nodes, ways in ((None, set()), ((0, 0, 0, 0, 1, 1), {("F1", "F2"), ("B2", "B1")})):
        programs = lower(gpipe(chain_of(*stages, nodes=nodes), 2))
        auto = scattered(programs, "auto")
        messages = [m for program in auto.instructions for m in program if not isinstance(m, Run)]
        assert {(m.producer, m.consumer) for m in messages if m.part} == ways
        assert scattered(programs, "never") == programs


def test_what_goes_whole_is_said() -> None:
    """The first stage is on one GPU, so its inputs come whole."""
    words = scattered_in_words(scattered(lower(gpipe(FROM_ONE, 2)), "always"))
    assert words == "parts of tensors: F0 -> F1 in 3; whole: B1 -> B0"
    assert not scattered_in_words(lower(gpipe(FROM_ONE, 2)))


def changed(programs: Programs, device: int, change: Callable[[Instruction], Instruction]) -> Programs:
    return programs.changed(lambda at, instruction: change(instruction) if at == device else instruction)


def test_wrong_parts_are_refused() -> None:
    programs = scattered(lower(gpipe(TWO_TEAMS, 1)), "always")

    def with_part(
        kind: type[Send] | type[Receive], part: tuple[int, int] | None
    ) -> Callable[..., Instruction]:
        return lambda message: replace(message, part=part) if isinstance(message, kind) else message

    one_end = changed(programs, 2, with_part(Receive, None))
    with pytest.raises(
        UnsafeProgramsError, match="device 0 sends F0 for F1 .* as part 0 of 2, which does not"
    ):
        check(one_end)
    both_ends = changed(one_end, 0, with_part(Send, None))
    with pytest.raises(
        UnsafeProgramsError,
        match="device 3 receives F0 for F1 of micro-batch 0 as part 1 of 2, but device 2 receives it whole",
    ):
        check(both_ends)
    swapped = changed(changed(programs, 2, with_part(Receive, (1, 2))), 0, with_part(Send, (1, 2)))
    with pytest.raises(UnsafeProgramsError, match="as part 1 of 2, but it takes all of it, or part 0 of 2"):
        check(swapped)
