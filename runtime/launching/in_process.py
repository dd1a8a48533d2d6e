"""A run whose devices are threads of this process and take turns: deterministic, and a deadlock ends it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from runtime.codegen.script import Script, read_script
from runtime.execution.process import Process
from runtime.execution.run_options import RunOptions
from runtime.launching.processes import POLL_S, Processes, report_failure
from runtime.loops.train import run_device
from runtime.transport.in_memory import NETWORK_OF, MemoryTransport
from runtime.transport.protocol import Transport
from runtime.transport.turns import StoppedError, backward_in_own_thread


class InProcess(Processes):
    """The scripts in threads."""

    def __init__(self, directory: Path, num_devices: int, options: RunOptions) -> None:
        """Start the threads."""
        self._num_threads = torch.get_num_threads()
        assert options.device is not None
        assert options.backend is not None
        self._network = NETWORK_OF[options.backend](num_devices, device=options.device)
        self._failed: list[int] = []
        scripts = [read_script(directory / f"device_{device}.py") for device in range(num_devices)]
        self._threads = [
            threading.Thread(
                target=self._run, args=(script, Process(device, num_devices, options)), daemon=True
            )
            for device, script in enumerate(scripts)
        ]
        for thread in self._threads:
            thread.start()

    def poll(self) -> int | None:
        """Return 0 when all devices have ended, 1 as soon as one failed."""
        for thread in self._threads:
            thread.join(POLL_S / len(self._threads))
        if self._failed:
            return 1
        return None if any(thread.is_alive() for thread in self._threads) else 0

    def stop(self) -> None:
        """Let every device fail where it waits next; a thread cannot be ended while it computes."""
        self._network.turns.stop()
        for thread in self._threads:
            thread.join(POLL_S)
        torch.set_num_threads(self._num_threads)

    def _run(self, script: Script, process: Process) -> None:
        """Be one device."""
        turns = self._network.turns
        turns.begin(process.device)
        failed = True
        try:
            run_device(script, process, self._connected)
            failed = False
        except StoppedError:
            pass
        except BaseException as error:
            if not isinstance(error.__cause__, StoppedError):
                report_failure(process, error)
        finally:
            if failed:
                self._failed.append(process.device)
            turns.end(process.device, failed)

    @contextmanager
    def _connected(self, script: Script, process: Process) -> Iterator[Transport]:
        """Reach the other devices through the network."""
        with backward_in_own_thread(self._network.device):
            yield MemoryTransport.of(self._network, script.placement, script.channels, process.device)
