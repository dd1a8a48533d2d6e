"""How long an iteration takes when transfers block their devices, or wait for each other, or do not.

Programs are played in virtual time, with given times of blocks and transfers: Tessel's comparison of
blocking and non-blocking communication (Tessel, Fig. 7 and 17) for any programs and any ratio of the two, and
the same programs under NCCL. Not known here: jitter, memory, what a call costs by itself, and links that
messages share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from runtime.program.instructions import Programs
from runtime.virtual.iteration import BlockCosts, Iteration, Playback
from runtime.virtual.rules import Communication, Rules, of_network
from schedsearch.schedule import Instance


def play(
    programs: Programs,
    rules: Rules | Communication,
    block_time: Mapping[str, float] | None = None,
    transfer_time: Callable[[str, str], float] | None = None,
    time_of: Mapping[Instance, float] | None = None,
) -> Playback:
    """Play one iteration, every device as early as its program allows.

    A transfer begins when both ends have come to it and, where it shares a communicator with others, when
    the earlier ones of both ends are over. A block begins when all its devices have come to it and its
    tensors are there. A device comes to an instruction at the end of the block before it.

    With the same programs no time is later under ``directed`` than under ``pair``, ``device`` and
    ``blocking``, in that order: each adds waits to those of the one before.

    Args:
        programs: Programs of all devices; they need not be safe.
        rules: What a transfer holds up: of a network, or of NCCL.
        block_time: Time of each block, above 0; by default the placement's ticks, of the mode that it
            runs in.
        transfer_time: Time of what a block (first name) hands to another, at least 0; by default the
            placement's ticks.
        time_of: Time of each block of each micro-batch, where they differ; by default that of its block.

    Raises:
        UnsafeProgramsError: The programs do not end, or a device is given another message than it expects;
            the message says where each device stands, and what it waits for.

    >>> from placements.shapes import v_shape
    >>> from runtime.program.lower import lower
    >>> from schedsearch.baselines import one_f_one_b
    >>> programs = lower(one_f_one_b(v_shape(3), 4))
    >>> [play(programs, how, transfer_time=lambda *_: 1.0).time for how in Communication]
    [39.0, 35.0, 33.0, 32.0]
    >>> for rules in (Rules(), Rules(own_receive_stream=False), Rules(waits_at_once=True)):
    ...     print(play(programs, rules, transfer_time=lambda *_: 1.0).time)
    32.0
    32.0
    37.0
    """
    placement = programs.placement
    own = time_of or {}

    def time(instance: Instance) -> float:
        return block_time[instance[0]] if block_time else programs.block(*instance).time

    costs = BlockCosts(lambda _, instance, now: now + (own.get(instance) or time(instance)))
    chosen = of_network(rules) if isinstance(rules, Communication) else rules
    return Iteration(programs, chosen, costs, transfer_time or placement.transfer_time).play()


def cheapest_sharing(
    programs: Programs, transfer_time: Callable[[str, str], float] | None = None
) -> Communication:
    """Return ``pair`` if an iteration takes no longer with a communicator for each pair, else ``directed``.

    Args:
        programs: Safe ones.
        transfer_time: See `play`.
    """
    pair, directed = (
        play(programs, how, transfer_time=transfer_time).time
        for how in (Communication.PAIR, Communication.DIRECTED)
    )
    return Communication.PAIR if pair <= directed else Communication.DIRECTED
