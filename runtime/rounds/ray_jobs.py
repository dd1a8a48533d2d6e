"""GPUs on Ray's nodes, and a job's command there: a placement group with an actor on each node of the job.

A GPU type is a custom resource, as in ``ray start --resources='{"v100": 4}'``. It does not know rounds.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from placements.forms.texts import write_json
from runtime.rounds.iterator import ACTOR, CHECKPOINTS, LEASES, STOP, Lease, LeaseError, LeaseReport, remove
from schedsearch.cluster.jobs import Job

_LOOK_S, _POLL_S = 0.1, 0.01
_NEWS_S = 30.0
"""Time after which Ray knows that a node is gone."""


class JobError(RuntimeError):
    """A job failed; the message says how."""


class NodeGoneError(JobError):
    """A node of a job is gone."""


@contextmanager
def connected(gpus: Mapping[str, int]) -> Iterator[None]:
    """Connect to the Ray of ``RAY_ADDRESS``, or to one that is started here and has GPUs of these types.

    Raises:
        LeaseError: Ray is not installed, or cannot be reached.
    """
    # Nothing of Ray's own on the screen: what happens to jobs is told in a line.
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS_SKIP_REGEX=".")
    address = os.environ.get("RAY_ADDRESS")
    own: dict[str, Any] = {"resources": dict(gpus), "include_dashboard": False, "object_store_memory": 2**27}
    try:
        import ray

        logging.getLogger("ray").setLevel(logging.ERROR)
        host, _, port = (address or "").rpartition(":")
        if port.isdigit():  # Ray itself would wait for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(log_to_driver=False, configure_logging=False, **({} if address else own))
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        reason, wanted = str(error).strip().partition("\n")[0], "pip install 'schedsearch[ray]'"
        remedy = f"correct RAY_ADDRESS, {address!r}" if address else wanted
        raise LeaseError(f"run.command: Ray cannot be used ({reason}); {remedy}") from None
    try:
        yield
    finally:
        ray.shutdown()


class RealJob(NamedTuple):
    """A job, its command, which is started in the folder of this process, its checkpoints, and its output.

    All nodes see these folders. Further nodes of a job write into ``log_1.txt`` and so on.
    """

    job: Job
    command: Sequence[str]
    checkpoints: Path
    log: Path


class RayGpus:
    """GPUs of a cluster on the nodes that Ray has now.

    Attributes:
        part: Part of a GPU that a job reserves: half where two share one.
        nodes: Ray's description of each node.
        node_of: Node of each GPU of a type, by its id; None where there is none.
    """

    def __init__(self, gpus: Mapping[str, int], part: float = 1.0) -> None:
        """Look for nodes."""
        self.part = part
        self.node_of: dict[str, list[str | None]] = {name: [None] * count for name, count in gpus.items()}
        self.look()

    def look(self) -> list[list[int]]:
        """Look for nodes that are gone, or there again; return the ids of each type's GPUs that are there."""
        self.nodes = _alive_nodes()
        for gpu_type, places in self.node_of.items():
            places[:] = [node if node in self.nodes else None for node in places]
            for node, found in self.nodes.items():
                for _ in range(int(found["Resources"].get(gpu_type, 0)) - places.count(node)):
                    if None in places:
                        places[places.index(None)] = node
        return [[gpu for gpu, node in enumerate(places) if node] for places in self.node_of.values()]

    def devices_of(self, lease: Lease) -> dict[str, list[int]]:
        """Return the devices of a lease on each of its nodes; a `NodeGoneError` if one is gone.

        Devices of a node are numbered type by type.
        """
        devices = defaultdict[str, list[int]](list)
        for gpu in lease.gpu_ids:
            node = self.node_of[lease.gpu_type][gpu]
            if node is None:
                raise NodeGoneError("lost its node")
            all_ = [
                (name, i)
                for name, ids in self.node_of.items()
                for i, place in enumerate(ids)
                if place == node
            ]
            devices[node].append(all_.index((lease.gpu_type, gpu)))
        return devices


class RayJob:
    """A job on its nodes.

    Attributes:
        lease: Its lease now.
        start_at: When it was to start, in s since 1970.
    """

    def __init__(self, gpus: RayGpus, lease: Lease, job: RealJob) -> None:
        """Reserve the GPUs of a lease, and start the command on each node; a `NodeGoneError` if one is gone.

        The environment has torchrun's options.
        """
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        devices, self.start_at = gpus.devices_of(lease), time.time()
        self._nodes, self._actors = [*devices], []
        self._group = placement_group(
            [{lease.gpu_type: gpus.part * len(here)} for here in devices.values()],
            bundle_label_selector=[{"ray.io/node-id": node} for node in devices],
        )
        for torn in job.checkpoints.glob("torn_*"):
            remove(torn)
        port = random.randrange(20000, 32768)  # below those that systems give out
        for rank, here in enumerate(devices.values()):
            environment = {
                CHECKPOINTS: job.checkpoints,
                "SCHEDSEARCH_JOB": job.job.name,
                "SCHEDSEARCH_JOB_TYPE": job.job.type,
                "SCHEDSEARCH_GPU_TYPE": lease.gpu_type,
                "SCHEDSEARCH_GPUS": ",".join(map(str, lease.gpu_ids)),
                "PET_NNODES": len(devices),
                "PET_NODE_RANK": rank,
                "PET_NPROC_PER_NODE": len(here),
                "PET_MASTER_ADDR": gpus.nodes[self._nodes[0]]["NodeManagerAddress"],
                "PET_MASTER_PORT": port,
                "CUDA_VISIBLE_DEVICES": ",".join(map(str, here)),
                **{name: value for name, value in os.environ.items() if name == "OMP_NUM_THREADS"},
            }
            place = PlacementGroupSchedulingStrategy(self._group, rank)
            actor = _ray().remote(num_cpus=0, concurrency_groups={"aside": 1}, scheduling_strategy=place)(
                JobProcess
            )
            own_log = job.log.with_stem(f"{job.log.stem}_{rank}") if rank else job.log
            texts = {name: str(value) for name, value in environment.items()}
            self._actors.append(actor.remote(job.command, texts, Path.cwd(), own_log))
        self.run(lease)

    def run(self, lease: Lease) -> None:
        """Hand the job a lease; one without steps ends it."""
        self.lease, self._reports = lease, [actor.run.remote(lease) for actor in self._actors]

    def report(self, timeout_s: float, on_look: Callable[[], object] = lambda: None) -> LeaseReport:
        """Wait for the end of the lease, and look about meanwhile; a `JobError` if it fails."""
        from ray.exceptions import RayActorError, RayTaskError

        left, end_s = self._reports, time.monotonic() + timeout_s
        try:
            while left:
                on_look()
                ready, left = _ray().wait(left, timeout=_LOOK_S)
                _ray().get(ready)
                if left and self._lost_node():
                    raise NodeGoneError("lost its node")
                if left and time.monotonic() > end_s:
                    raise JobError(f"took longer than {timeout_s:g} s for its lease")
        except RayTaskError as error:
            raise error.cause from None
        except RayActorError:
            end_s = time.monotonic() + _NEWS_S
            while time.monotonic() < end_s and not self._lost_node():
                time.sleep(_LOOK_S)
            raise (
                NodeGoneError("lost its node")
                if self._lost_node()
                else JobError("lost the process beside it")
            ) from None
        reports: list[LeaseReport] = _ray().get(self._reports)
        return max(reports, key=lambda report: report.save_s)

    def stop(self) -> None:
        """Ask the job to end its lease at its next step; one of several nodes goes on to the end."""
        if len(self._actors) == 1:
            self._actors[0].stop.options(concurrency_group="aside").remote()

    def end(self) -> None:
        """End the command where it still runs, and give the GPUs back."""
        from ray.util.placement_group import remove_placement_group

        kills = [actor.kill.options(concurrency_group="aside").remote() for actor in self._actors]
        _ray().wait(kills, num_returns=len(kills), timeout=5.0)
        remove_placement_group(self._group)

    def _lost_node(self) -> bool:
        return not {*self._nodes} <= _alive_nodes().keys()


def _ray() -> Any:
    import ray  # loads slowly, and may not be installed

    return ray


def _alive_nodes() -> dict[str, Mapping[str, Any]]:
    return {node["NodeID"]: node for node in _ray().nodes() if node["Alive"]}


class JobProcess:
    """A job's command on one node, with a session of its own, so that a Ctrl-C is not for it."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        """Note how it is started: beside the node's environment, in a folder, with output into a log."""
        self._messages, self._leases = Path(tempfile.mkdtemp(prefix="schedsearch_")), 0
        own = {LEASES: str(self._messages), ACTOR: str(os.getpid())}
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets it to 1
        self._command, self._folder, self._log = command, folder, log
        self._environment = {**os.environ, **environment, **own}
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, lease: Lease) -> LeaseReport:
        """Hand out a lease, and return at its end, or where it has no steps at the end of the command.

        Raises:
            JobError: The command cannot be started, failed, or has ended before its lease.
        """
        report, is_last = self._messages / f"did_{self._leases}.json", lease.first == lease.until
        write_json(self._messages / f"lease_{self._leases}.json", lease)
        self._leases += 1
        process = self._process = self._process or self._started()
        while (code := process.poll()) is None and (is_last or not report.exists()):
            time.sleep(_POLL_S)
        if code:
            raise JobError(f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}")
        if is_last:
            shutil.rmtree(self._messages, ignore_errors=True)
            return LeaseReport(lease.until)
        if not report.exists():
            raise JobError("ended before its lease")
        return LeaseReport(*json.loads(report.read_text()))

    def stop(self) -> None:
        """Let the job end its lease at its next step."""
        (self._messages / STOP).touch()

    def kill(self) -> None:
        """End the command at once, with all that it started."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _started(self) -> subprocess.Popen[bytes]:
        try:
            with self._log.open("ab") as output:
                return subprocess.Popen(
                    self._command,
                    cwd=self._folder,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise JobError(f"cannot be started ({error.strerror})") from None
