"""The steady states of a program as loops: found in the instructions, and unrolled back to exactly these.

It reads the program only, not the search's repetend: transfers may make a device's loop begin elsewhere. A
schedule that ends one phase before it begins the next, as GPipe does, has a loop for each.

Where all of a program repeats, its loops can run more or fewer rounds, and their ends stay as they are: it is
one of any number of micro-batches. Whether it is safe then `runtime.program.deadlock.check` tells.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from runtime.program.instructions import Instruction, Programs, Run, Send


@dataclass(frozen=True)
class Loop:
    """Rounds that differ by their micro-batches only.

    Attributes:
        body: What the first round does.
        rounds: How often it runs; at least 2, when it is found.
        shift: Micro-batches by which each round is later than the one before.
    """

    body: tuple[Instruction, ...]
    rounds: int
    shift: int

    @property
    def first_micro_batch(self) -> int:
        """The lowest one in the first round."""
        return min(instruction.micro_batch for instruction in self.body)

    def unroll(self) -> tuple[Instruction, ...]:
        """Return all rounds, instruction by instruction."""
        rounds = range(self.rounds)
        return tuple(_later(step, turn * self.shift) for turn in rounds for step in self.body)


Straight = tuple[Instruction, ...]
"""Instructions outside of the loops."""


@dataclass(frozen=True)
class LoopedProgram:
    """A program as loops, with straight sections before, between and after them.

    Attributes:
        sections: Sections in their order; no straight section is empty or next to another.
    """

    sections: tuple[Straight | Loop, ...]

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops, in their order."""
        return tuple(section for section in self.sections if isinstance(section, Loop))

    @property
    def straight(self) -> Straight:
        """All instructions outside of the loops, in their order."""
        return tuple(step for section in self.sections if not isinstance(section, Loop) for step in section)

    @property
    def covered(self) -> int:
        """How many instructions the loops stand for."""
        return sum(len(loop.body) * loop.rounds for loop in self.loops)

    def unroll(self) -> tuple[Instruction, ...]:
        """Return the program, instruction by instruction."""
        sections = (section.unroll() if isinstance(section, Loop) else section for section in self.sections)
        return tuple(step for section in sections for step in section)


def find_loops(instructions: Sequence[Instruction], shift: int = 1) -> LoopedProgram:
    """Find the loop that covers most of a program, then in the rest the next one, and so on.

    Each block and each message is in one loop only: whatever of them is left over beside it is warmup or
    cooldown. Of loops that cover the same, one with the smallest body comes first, then one that does not
    begin with the send of what ran before it, then the earliest.

    A loop of period p goes on as long as each instruction comes again p places on, `shift` micro-batches
    later. In a program each instruction comes once, so it has one possible period, and the time grows
    with the length of the program and the number of loops only.

    Args:
        instructions: Any; a program's, as a rule.
        shift: Micro-batches per round; those of the repetend.

    >>> from runtime.program.instructions import parse_instruction
    >>> lines = ["run F0 #0", "run F0 #1", "run B0 #0", "run F0 #2", "run B0 #1", "run B0 #2"]
    >>> loop = find_loops([parse_instruction(line) for line in lines]).loops[0]
    >>> [str(instruction) for instruction in loop.body], loop.rounds, loop.first_micro_batch
    (['run F0 #1', 'run B0 #0'], 2, 0)
    """
    assert shift >= 1
    sections: list[Straight | Loop] = [tuple(instructions)]
    taken: set[Instruction] = set()
    while candidates := [
        loop
        for index, section in enumerate(sections)
        if not isinstance(section, Loop)
        for loop in _loops(section, index, shift, taken)
    ]:
        covered, minus_period, _, minus_begin, minus_place = max(candidates)
        place, begin, period = -minus_place, -minus_begin, -minus_period
        section = sections[place]
        assert not isinstance(section, Loop)
        loop = Loop(section[begin : begin + period], covered // period, shift)
        taken |= set(map(kind, loop.body))
        sections[place : place + 1] = [section[:begin], loop, section[begin + covered :]]
    return LoopedProgram(tuple(section for section in sections if section))


def best_loops(programs: Programs) -> tuple[int, tuple[LoopedProgram, ...]]:
    """Return the micro-batches per round whose loops cover most, and the looped programs by device.

    At most as many as devices are tried, and none after one whose loops cover half of the programs and are
    of any number of micro-batches; see `parametric`.
    """
    half = sum(map(len, programs.instructions)) / 2
    most = -1
    for shift in range(1, programs.placement.num_devices + 1):
        looped = loops_of_each(programs, shift)
        covered = sum(program.covered for program in looped)
        if covered > most:
            most, best = covered, (shift, looped)
        if covered >= half and parametric(programs, looped, shift):
            break
    return best


def loops_of_each(programs: Programs, shift: int) -> tuple[LoopedProgram, ...]:
    """Return the looped program of each device; see `find_loops`."""
    return tuple(find_loops(program, shift) for program in programs.instructions)


def kind(instruction: Instruction) -> Instruction:
    """Return an instruction without its micro-batch, and without the mode that this one runs in."""
    if isinstance(instruction, Run):
        return Run(instruction.block, 0, stream=instruction.stream)
    return replace(instruction, micro_batch=0)


_Candidate = tuple[int, int, bool, int, int]
"""A loop, the best one greatest: instructions that it stands for, -period, whether it does not begin with a
send, -place of its first instruction in a section, -index of the section."""


def _loops(section: Straight, index: int, shift: int, taken: Container[Instruction]) -> Iterator[_Candidate]:
    """Yield the loops of a section that have no taken instruction."""
    places_of: dict[Instruction, list[int]] = defaultdict(list)
    for place, step in enumerate(section):
        places_of[step].append(place)
    recurrences: dict[int, list[int]] = defaultdict(list)
    for place, step in enumerate(section):
        for again in places_of.get(_later(step, shift), ()):
            if again > place:
                recurrences[again - place].append(place)
    num_taken = list(itertools.accumulate((kind(step) in taken for step in section), initial=0))
    for period, places in recurrences.items():
        for _, group in itertools.groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
            consecutive = [place for _, place in group]
            rounds, spare = divmod(len(consecutive), period)
            for begin in range(consecutive[0], consecutive[0] + spare + 1) if rounds else ():
                if num_taken[begin] == num_taken[begin + period]:
                    starts_well = not isinstance(section[begin], Send)
                    yield period * (rounds + 1), -period, starts_well, -begin, -index


def _later(instruction: Instruction, micro_batches: int) -> Instruction:
    return replace(instruction, micro_batch=instruction.micro_batch + micro_batches)


@dataclass(frozen=True)
class ParametricPrograms:
    """The looped programs of all devices, each of whose blocks and messages is in a loop of its device.

    Attributes:
        programs: Programs for their own number of micro-batches.
        looped: Looped programs by device.
        shift: Micro-batches per round.
        least: The fewest micro-batches that they can have.
    """

    programs: Programs
    looped: tuple[LoopedProgram, ...]
    shift: int
    least: int

    def at(self, num_micro_batches: int) -> Programs:
        """Return the programs for at least `least` micro-batches, a whole number of rounds more."""
        more = num_micro_batches - self.programs.num_micro_batches
        assert num_micro_batches >= self.least and more % self.shift == 0

        def moved(looped: LoopedProgram, section: Straight | Loop) -> Straight | Loop:
            if isinstance(section, Loop):
                return replace(section, rounds=section.rounds + more // self.shift)
            return tuple(
                replace(step, micro_batch=step.micro_batch + more) if is_late(looped, step) else step
                for step in section
            )

        instructions = tuple(
            LoopedProgram(tuple(moved(looped, section) for section in looped.sections)).unroll()
            for looped in self.looped
        )
        return replace(self.programs, num_micro_batches=num_micro_batches, instructions=instructions)


def parametric(programs: Programs, looped: Sequence[LoopedProgram], shift: int) -> ParametricPrograms | None:
    """Return looped programs as programs of any number of micro-batches, or None if their loops are not.

    Every block and every message of a device must be in a loop, for every micro-batch of a round. With the
    fewest micro-batches some loop does not run at all, or runs one round if none were left.

    Args:
        programs: Programs of all devices.
        looped: Their loops; see `find_loops`.
        shift: Micro-batches per round.
    """
    if not any(part.loops for part in looped) or not all(_is_whole(part, shift) for part in looped):
        return None
    rounds = min(loop.rounds for part in looped for loop in part.loops)
    least = programs.num_micro_batches - rounds * shift
    return ParametricPrograms(programs, tuple(looped), shift, least or shift)


def is_late(looped: LoopedProgram, instruction: Instruction) -> bool:
    """Tell whether an instruction outside of the loops is of a later micro-batch than its like in a loop."""
    wanted = kind(instruction)
    again = [
        step.micro_batch
        for loop in looped.loops
        for step in loop.body
        if (step.micro_batch - instruction.micro_batch) % loop.shift == 0 and kind(step) == wanted
    ]
    return bool(again) and instruction.micro_batch > again[0]


def _is_whole(looped: LoopedProgram, shift: int) -> bool:
    inside: dict[Instruction, list[int]] = {kind(step): [] for step in looped.straight}
    for loop in looped.loops:
        for step in loop.body:
            inside.setdefault(kind(step), []).append(step.micro_batch % shift)
    return all(sorted(residues) == list(range(shift)) for residues in inside.values())
