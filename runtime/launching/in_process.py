"""A run whose devices are threads of this process and take turns: deterministic, and a deadlock ends it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import torch

from runtime.codegen.script import Script, read_script
from runtime.execution.process import Process
from runtime.execution.run_options import RunOptions
from runtime.launching.processes import POLL_S, Processes, report_failure
from runtime.loops.train import run_device
from runtime.transport.in_memory import NETWORK_OF, MemoryTransport
from runtime.transport.protocol import Transport
from runtime.transport.turns import StoppedError


class InProcess(Processes):
    """The scripts in threads."""

    def __init__(self, directory: Path, num_devices: int, options: RunOptions) -> None:
        self._num_threads = torch.get_num_threads()
        assert options.device is not None
        assert options.backend is not None
        self._network = NETWORK_OF[options.backend](num_devices, device=options.device)
        self._status = 1
        scripts = [read_script(directory / f"device_{device}.py") for device in range(num_devices)]
        parts = [
            partial(self._be, script, Process(device, num_devices, options))
            for device, script in enumerate(scripts)
        ]
        self._thread = threading.Thread(target=self._run, args=(parts,), daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        """Return 0 when all devices have ended, 1 when one failed and so all have stopped."""
        self._thread.join(POLL_S)
        return None if self._thread.is_alive() else self._status

    def stop(self) -> None:
        """Let every device fail where it waits next; a thread cannot be ended while it computes."""
        self._network.turns.stop()
        self._thread.join(POLL_S)
        torch.set_num_threads(self._num_threads)

    def _run(self, parts: list[partial[None]]) -> None:
        """Run all devices; the first that fails has reported why."""
        with suppress(BaseException):
            self._network.run(parts)
            self._status = 0

    def _be(self, script: Script, process: Process) -> None:
        """Be one device."""
        try:
            run_device(script, process, self._connected)
        except BaseException as error:
            if not isinstance(error, StoppedError) and not isinstance(error.__cause__, StoppedError):
                report_failure(process, error)
            raise

    @contextmanager
    def _connected(self, script: Script, process: Process) -> Iterator[Transport]:
        """Reach the other devices through the network."""
        yield MemoryTransport.of(self._network, script.placement, script.channels, process.device)
