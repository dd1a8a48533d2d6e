"""Sums of gradients over the copies of a parameter, begun as soon as the gradients are complete.

A block's gradients are complete after its last backward of an iteration, while blocks before it still run and
messages go on. Its sum begins then and is waited for when the iteration is over. Two facts make that safe:

- Beginning a sum waits for nobody, and no block waits for a sum. So the iteration ends as it would without;
  then every device has begun all of its sums, and each sum has all of its members.
- All devices begin their sums in the order of `Model.buckets`, which is the same everywhere: one that is
  complete waits for its turn. So the members of a team begin theirs in the same order, as collectives ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from runtime.models.model import Model, ReplicaBucket, team_of
from runtime.transport.protocol import Team
from runtime.transport.shards import Shards, sum_in_order


class _Sum(NamedTuple):
    """A sum that this device takes part in.

    Attributes:
        bucket: Parameters of which the gradients are summed.
        blocks: Blocks of this device that have them.
        order: The place of each group's device in the team, by group.
        copies: The team.
    """

    bucket: ReplicaBucket
    blocks: frozenset[str]
    order: tuple[int, ...]
    copies: Shards


class CopySums:
    """The sums of one device.

    Args:
        copies: The teams of its `teams_of_replicas` that the device is in.
        takers: Number of copies of each block whose copies take micro-batches in turn, and average their
            gradients; the gradients of other copies are added up.
        exact: Whether gradients are gathered and added in the order of the groups, so that a run can be
            compared bit by bit; otherwise the library adds them up, and less is sent.
    """

    def __init__(
        self,
        model: Model,
        copies: Mapping[Team, Shards],
        takers: Mapping[str, int] | None = None,
        *,
        exact: bool,
    ) -> None:
        """Find the sums that the device takes part in, in the order of all."""
        self._model, self._exact, self._takers = model, exact, takers or {}
        self._sums = [
            _Sum(
                bucket,
                frozenset(bucket.blocks) & model.groups.keys(),
                tuple(team.index(group[shard]) for group in bucket.groups),
                copies[team],
            )
            for bucket in model.buckets
            for shard in range(len(bucket.groups[0]))
            if (team := team_of(bucket.groups, shard)) in copies
        ]
        self._complete: set[str] = set()
        self._finishes: list[Callable[[], None]] = []

    def complete(self, block: str) -> None:
        """Take note that a forward block has all its gradients; begin the sums that are due."""
        self._complete.add(block)
        for bucket_sum in self._sums[len(self._finishes) :]:
            if not bucket_sum.blocks <= self._complete:
                break
            self._finishes.append(self._begin(bucket_sum))

    def begin_update(self, block: str) -> Callable[[], None] | None:
        """Begin the sums of a block at an update within an iteration; all of its copies must call it.

        Returns:
            A function that waits for them, and gives every copy its own; None where the block has no copies.
        """
        finishes = [self._begin(bucket_sum) for bucket_sum in self._sums if bucket_sum.blocks == {block}]

        def finish_all() -> None:
            for finish in finishes:
                finish()

        return finish_all if finishes else None

    def finish(self) -> None:
        """Wait for all sums, and give every copy its own; every device must call it after an iteration."""
        for bucket_sum in self._sums[len(self._finishes) :]:  # of blocks without a backward
            self._finishes.append(self._begin(bucket_sum))
        for finish in self._finishes:
            finish()
        self._complete, self._finishes = set(), []

    def _begin(self, bucket_sum: _Sum) -> Callable[[], None]:
        """Begin a sum; return a function that waits for it, and hands it out."""
        row = self._model.flat_gradients(bucket_sum.bucket.names)
        takers = self._takers.get(bucket_sum.bucket.blocks[0], 1)
        gather, add_up = bucket_sum.copies.begin_gather, bucket_sum.copies.begin_sum
        wait: Callable[[], Any] = gather(row) if self._exact else add_up(row)

        def finish() -> None:
            rows = wait()
            total = sum_in_order([rows[place] for place in bucket_sum.order]) if self._exact else rows
            self._model.set_gradients(bucket_sum.bucket.names, total if takers == 1 else total / takers)

        return finish
