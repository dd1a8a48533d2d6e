"""Who may set the clocks of which GPUs, as the clock helper is told when it starts."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Sequence

from runtime.clocks.nvml import NvmlGpu


class RefusedError(ValueError):
    """The helper refuses a request; the message says why, and what would do."""


class AllowList(dict[int, frozenset[str] | None]):
    """For each user id the UUIDs of its GPUs; None for all GPUs. All else is refused by a `RefusedError`."""

    def gpus(self, all_gpus: Callable[[], set[str]]) -> set[str]:
        """Return the UUIDs of the GPUs of all users; `all_gpus` is called if one has all."""
        own = [gpus for gpus in self.values() if gpus is not None]
        return set().union(*own) if len(own) == len(self) else all_gpus()

    def check_user(self, uid: int) -> None:
        """Refuse a user who is not in the list."""
        if uid not in self:
            raise RefusedError(
                f"user {uid} may not set clocks; have the helper started with --allow {uid} as well"
            )

    def check_gpu(self, uid: int, uuid: str) -> None:
        """Refuse a GPU that a user of the list may not set."""
        gpus = self[uid]
        if gpus is not None and uuid not in gpus:
            raise RefusedError(
                f"user {uid} may not set the clock of GPU {uuid}; use {' or '.join(sorted(gpus))}"
            )


def read_allow_list(users: Sequence[str]) -> AllowList:
    """Return the list that a command line describes.

    Args:
        users: A user by name or id each, with its GPUs by NVML's index or UUID where it may not set all:
            ``alice`` or ``alice:0,1``. None for the user who starts the helper.

    Raises:
        RefusedError: A user cannot be read.
        NvmlError: There is no such GPU.
    """
    allowed = AllowList()
    for each in users or [str(os.geteuid())]:
        name, colon, gpus = each.partition(":")
        uid = _uid(name)
        if colon and not all(gpus.split(",")):
            raise RefusedError(
                f"--allow {each}: names no GPU after the colon; give {name}:0, or {name} alone"
            )
        own = frozenset(NvmlGpu(gpu).uuid for gpu in gpus.split(",")) if colon else None
        before = allowed.get(uid, frozenset())
        allowed[uid] = None if own is None or before is None else own | before
    return allowed


def _uid(name: str) -> int:
    try:
        return int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise RefusedError(f"--allow {name}: is no user of this machine; give a name or an id") from None
