"""Who may set which clocks of which GPUs, as the clock helper is told when it starts."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.clocks.nvml import NvmlGpu


class RefusedError(ValueError):
    """The helper does not do what was asked; the message says why, and what would do."""


@dataclass(frozen=True)
class AllowList:
    """What the helper does for whom; all else is refused.

    Attributes:
        gpus_of: For each user id the UUIDs of its GPUs; None for all GPUs.
        min_mhz: Lowest clock.
        max_mhz: Highest clock.
    """

    gpus_of: Mapping[int, frozenset[str] | None]
    min_mhz: int
    max_mhz: int

    def check_user(self, uid: int) -> None:
        """Refuse a user who is not in the list.

        Raises:
            RefusedError: It is not.
        """
        if uid not in self.gpus_of:
            raise RefusedError(
                f"user {uid} may not set clocks; have the helper started with --allow {uid} as well"
            )

    def check_gpu(self, uid: int, uuid: str) -> None:
        """Refuse a GPU that a user may not set.

        Raises:
            RefusedError: It is not the user's.
        """
        self.check_user(uid)
        gpus = self.gpus_of[uid]
        if gpus is not None and uuid not in gpus:
            raise RefusedError(
                f"user {uid} may not set the clock of GPU {uuid}; use {' or '.join(sorted(gpus))}"
            )

    def check_clock(self, clock_mhz: int) -> None:
        """Refuse a clock that nobody may set.

        Raises:
            RefusedError: It is too low or too high.
        """
        if not self.min_mhz <= clock_mhz <= self.max_mhz:
            raise RefusedError(
                f"{clock_mhz} MHz is not allowed; make a plan with clocks of {self.min_mhz} to "
                f"{self.max_mhz} MHz"
            )


def read_allow_list(users: Sequence[str], clocks: str | None) -> AllowList:
    """Return the list that a command line describes.

    Args:
        users: A user by name or id each, with its GPUs by NVML's index or UUID where it may not set all:
            ``alice`` or ``alice:0,1``. None for the user who starts the helper.
        clocks: Lowest and highest clock in MHz, as ``600-1410``; None for any.

    Raises:
        RefusedError: A user or a range of clocks cannot be read.
        NvmlError: There is no such GPU.
    """
    gpus_of: dict[int, frozenset[str] | None] = {}
    for each in users or [str(os.geteuid())]:
        name, colon, gpus = each.partition(":")
        uid = _uid(name)
        if not colon:
            gpus_of[uid] = None
            continue
        if not all(gpus.split(",")):
            raise RefusedError(
                f"--allow {each}: names no GPU after the colon; give {name}:0, or {name} alone"
            )
        own = frozenset(NvmlGpu(gpu).uuid for gpu in gpus.split(","))
        before = gpus_of.get(uid, frozenset())
        gpus_of[uid] = None if before is None else own | before
    return AllowList(gpus_of, *_range(clocks))


def _uid(name: str) -> int:
    if name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise RefusedError(f"--allow {name}: is no user of this machine; give a name or an id") from None


def _range(clocks: str | None) -> tuple[int, int]:
    if clocks is None:
        return 1, (1 << 32) - 1
    lowest, _, highest = clocks.partition("-")
    if not (lowest.isdigit() and highest.isdigit() and 0 < int(lowest) <= int(highest)):
        raise RefusedError(
            f"--clocks {clocks}: is no range of MHz; give the lowest and the highest, as 600-1410"
        )
    return int(lowest), int(highest)
