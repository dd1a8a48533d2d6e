"""What starts and ends jobs on workers: processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from runtime.leases.lease import Lease
from schedsearch.cluster.gpu_cluster import GpuCluster


class LocalProcess:
    """A process of this machine, with a session of its own, so that a Ctrl-C is not for it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start it."""
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=os.environ | dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """Return its exit code, below 0 for a signal; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End it at once, with all that it started, and wait until it is gone."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class LocalProcesses:
    """Runs jobs on this machine: its GPUs are those of the cluster, in the order of the types.

    Args:
        cluster: The GPUs.
    """

    def __init__(self, cluster: GpuCluster) -> None:
        """Count the GPUs before those of each type."""
        self._first, total = {}, 0
        for gpu_type, workers in cluster.workers.items():
            self._first[gpu_type] = total
            total += workers

    def start(
        self, lease: Lease, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> LocalProcess:
        """Start a command that sees the GPUs of a lease only, if there are any.

        Args:
            lease: Says where.
            command: Program and arguments.
            environment: Variables beside those of the worker.
            log: File to which its output is added.

        Raises:
            OSError: It cannot be started.
        """
        first = self._first[lease.gpu_type]
        visible = ",".join(str(first + gpu) for gpu in lease.gpu_ids)
        return LocalProcess(command, {**environment, "CUDA_VISIBLE_DEVICES": visible}, log)
