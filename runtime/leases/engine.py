"""Starts and ends jobs on workers: processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from runtime.leases.lease import Lease
from schedsearch.cluster.gpu_cluster import GpuCluster


class LocalProcess(subprocess.Popen[bytes]):
    """A process of this machine, with a session of its own, so that a Ctrl-C is not for it."""

    def kill(self) -> None:
        """End it at once, with all that it started, and wait until it is gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


class LocalProcesses:
    """Runs jobs on this machine: its GPUs are those of the cluster, in the order of the types."""

    def __init__(self, cluster: GpuCluster) -> None:
        """Number the GPUs of each type from the end of the type before."""
        self._first = dict(zip(cluster.workers, accumulate([0, *cluster.workers.values()]), strict=False))

    def start(
        self, lease: Lease, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> LocalProcess:
        """Start a command that sees the GPUs of a lease only, if there are any; its output is added to a log.

        Raises:
            OSError: It cannot be started.
        """
        first = self._first[lease.gpu_type]
        visible = ",".join(str(first + gpu) for gpu in lease.gpu_ids)
        with log.open("ab") as output:
            return LocalProcess(
                command,
                env={**os.environ, **environment, "CUDA_VISIBLE_DEVICES": visible},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
