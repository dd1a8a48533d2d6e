"""A Slurm of this machine alone, for tests: a controller, two nodes of one core each, and its own munge."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
FirstJobId={ports[0]}
NodeName=n0 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=main Nodes=ALL Default=YES State=UP
"""
"""A requeued job waits for ``cred_expire`` seconds. The port of a run is made of its job's id."""


@contextmanager
def two_nodes() -> Iterator[None]:
    """Start a Slurm for the commands of this process, and end it with all of its jobs.

    Where Slurm is not installed the test is skipped, with the reason.
    """
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root")
    if shutil.which("slurmctld") is None or shutil.which("munged") is None:
        pytest.skip("there is no Slurm here; apt-get install slurm-wlm munge")
    with ExitStack() as at_end:
        folder = Path(tempfile.mkdtemp(prefix="slurm_"))  # a socket's path must be short
        at_end.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in ("state", "n0", "n1"):
            (folder / name).mkdir()
        with ExitStack() as sockets:
            free = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
            ports = [sock.getsockname()[1] for sock in free]
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder, ports=ports))
        (folder / "munge.key-file").write_bytes(os.urandom(128))
        (folder / "munge.key-file").chmod(0o400)
        at_end.enter_context(pytest.MonkeyPatch.context()).setenv("SLURM_CONF", str(configuration))
        names = ("key-file", "socket", "pid-file", "log-file", "seed-file")
        munged = ["munged", "--foreground", "--force", *(f"--{name}={folder}/munge.{name}" for name in names)]
        daemons = list[subprocess.Popen[bytes]]()
        at_end.callback(_kill_all, configuration, daemons)
        log = at_end.enter_context((folder / "log").open("wb"))
        for line in (munged, ["slurmctld", "-D"], ["slurmd", "-D", "-N", "n0"], ["slurmd", "-D", "-N", "n1"]):
            daemons.append(subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True))
            until((folder / "munge.socket").exists)
        until(lambda: said("sinfo", "-hN", "-o", "%T").split() == ["idle"] * 2)
        yield


def said(*line: str) -> str:
    """Return the output of a command of Slurm's, whether or not it fails."""
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60).stdout


def until(happens: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, f"not in {seconds:g} s"
        time.sleep(0.1)


def _kill_all(configuration: Path, daemons: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill all processes of a Slurm but this one: its daemons, and leftovers of jobs."""
    sign = f"SLURM_CONF={configuration}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if int(path.parent.name) != os.getpid() and sign in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
    for daemon in daemons:
        daemon.wait()
