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
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placements.forms.texts import write_json
from runtime.rounds.lease import ACTOR, LEASES, START, STOP, Lease, LeaseError, LeaseReport

if TYPE_CHECKING:
    from schedsearch.cluster.gpu_cluster import GpuCluster

LOG = "log.txt"
"""Output of a job, in its folder; that of its further nodes is in ``log_1.txt`` and so on."""

_KILL_S, _LOOK_S, _POLL_S = 5.0, 0.5, 0.01


class JobError(RuntimeError):
    """A job failed; the message says how."""


class NodeGoneError(JobError):
    """A node of a job is gone."""


@contextmanager
def connected(cluster: GpuCluster) -> Iterator[None]:
    """Connect to the Ray of ``RAY_ADDRESS``, or to one that is started here and has all GPUs of the cluster.

    Raises:
        LeaseError: Ray is not installed, or cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address, own = os.environ.get("RAY_ADDRESS"), {}
    if not address:
        own = {"resources": dict(cluster.workers), "include_dashboard": False, "object_store_memory": 2**27}
    try:
        import ray

        logging.getLogger("ray").setLevel(logging.ERROR)
        ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **own)
    except ImportError:
        raise LeaseError("run.command: needs Ray; pip install 'schedsearch[ray]'") from None
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise LeaseError(f"RAY_ADDRESS: {address!r} cannot be used ({reason}); correct it") from None
    try:
        yield
    finally:
        ray.shutdown()


class RayGpus:
    """GPUs of a cluster on the nodes that Ray has now.

    Attributes:
        nodes: Ray's description of each node, by its id.
        node_of: Node of each GPU of a type, by the id of the GPU; None where there is none.
        part: Part of a GPU that a job reserves: half where two share one.
    """

    def __init__(self, cluster: GpuCluster, part: float) -> None:
        """Begin without nodes."""
        self.nodes: dict[str, Mapping[str, Any]] = {}
        self.part = part
        self.node_of: dict[str, list[str | None]] = {
            gpu_type: [None] * count for gpu_type, count in cluster.workers.items()
        }

    def look(self) -> list[list[int]]:
        """Look for nodes that are gone, or there again; return the ids of each type's GPUs that are there."""
        self.nodes = _alive_nodes()
        for gpu_type, places in self.node_of.items():
            places[:] = [node if node in self.nodes else None for node in places]
            for name, node in self.nodes.items():
                for _ in range(int(node["Resources"].get(gpu_type, 0)) - places.count(name)):
                    if None in places:
                        places[places.index(None)] = name
        return [[gpu for gpu, node in enumerate(places) if node] for places in self.node_of.values()]

    def devices_of(self, lease: Lease) -> dict[str, list[int]]:
        """Return the devices of a lease on each of its nodes, which are numbered type by type.

        Raises:
            NodeGoneError: One of its nodes is gone.
        """
        places, devices = self.node_of[lease.gpu_type], defaultdict[str, list[int]](list)
        types = [*self.node_of]
        for gpu in lease.gpu_ids:
            node = places[gpu]
            if node is None:
                raise NodeGoneError
            before = types[: types.index(lease.gpu_type)]
            first = sum(int(self.nodes[node]["Resources"].get(name, 0)) for name in before)
            devices[node].append(first + places[:gpu].count(node))
        return devices


class RayJob:
    """A job on its nodes.

    Attributes:
        lease: Steps that it does now.
        place: GPUs that it is on.
        is_new: Whether it has not ended a lease since its start.
        start_at: When it was to start, in s since 1970.
    """

    def __init__(
        self,
        gpus: RayGpus,
        lease: Lease,
        folder: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        """Reserve the GPUs of a lease, and start the command on each node, with torchrun's options for it.

        Raises:
            NodeGoneError: A node is gone.
        """
        import ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        devices = gpus.devices_of(lease)
        self.place, self.is_new, self.start_at = lease.place, True, time.time()
        self._nodes = [*devices]
        bundles = [{lease.gpu_type: gpus.part * len(here)} for here in devices.values()]
        labels = [{"ray.io/node-id": node} for node in devices]
        self._group = placement_group(bundles, bundle_label_selector=labels)
        actor = ray.remote(num_cpus=0, concurrency_groups={"aside": 1})(JobProcess)
        common = {
            **environment,
            START: str(time.time_ns()),
            "PET_NNODES": str(len(devices)),
            "PET_MASTER_ADDR": gpus.nodes[self._nodes[0]]["NodeManagerAddress"],
            "PET_MASTER_PORT": str(random.randrange(20000, 32768)),  # below those that systems give out
        }
        self._actors = []
        for rank, here in enumerate(devices.values()):
            place = PlacementGroupSchedulingStrategy(self._group, rank)
            options = {
                "PET_NODE_RANK": str(rank),
                "PET_NPROC_PER_NODE": str(len(here)),
                "CUDA_VISIBLE_DEVICES": ",".join(map(str, here)),
            }
            log = folder / (f"log_{rank}.txt" if rank else LOG)
            started = actor.options(scheduling_strategy=place).remote(
                command, common | options, Path.cwd(), log
            )
            self._actors.append(started)
        self.run(lease)

    def run(self, lease: Lease) -> None:
        """Hand the job a lease; one without steps ends it."""
        self.lease = lease
        self._reports = [actor.run.remote(lease) for actor in self._actors]

    def stop(self) -> None:
        """Ask the job to end its lease at its next step; one of several nodes goes on to the end."""
        if len(self._actors) == 1:
            self._actors[0].stop.options(concurrency_group="aside").remote()

    def report(self, timeout_s: float, on_look: Callable[[], object]) -> LeaseReport:
        """Wait for the end of the lease.

        Args:
            timeout_s: Time that it may take from now.
            on_look: Called while waiting.

        Raises:
            JobError: The job failed, a node is gone, or it takes too long.
        """
        import ray
        from ray.exceptions import RayActorError, RayTaskError

        left, end_s = self._reports, time.monotonic() + timeout_s
        while left:
            on_look()
            ready, left = ray.wait(left, timeout=_LOOK_S)
            try:
                ray.get(ready)
            except RayTaskError as error:
                raise error.cause from None
            except RayActorError:
                time.sleep(_LOOK_S)  # for the news of its node
                self._check_nodes()
                raise JobError("lost the actor beside it") from None
            if left:
                self._check_nodes()
            if left and time.monotonic() > end_s:
                raise JobError(f"took longer than {timeout_s:g} s for its lease")
        reports: list[LeaseReport] = ray.get(self._reports)
        return max(reports, key=lambda report: report.save_s)

    def end(self) -> None:
        """End the command where it still runs, and give the GPUs back."""
        import ray
        from ray.util.placement_group import remove_placement_group

        kills = [actor.kill.options(concurrency_group="aside").remote() for actor in self._actors]
        ray.wait(kills, num_returns=len(kills), timeout=_KILL_S)
        remove_placement_group(self._group)

    def _check_nodes(self) -> None:
        if not _alive_nodes().keys() >= {*self._nodes}:
            raise NodeGoneError


def _alive_nodes() -> dict[str, Mapping[str, Any]]:
    import ray

    return {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}


class JobProcess:
    """A job's command on one node, with a session of its own, so that a Ctrl-C is not for it."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        """Keep how the command is started: in a folder, with its output added to a log."""
        self._command, self._environment, self._folder, self._log = command, environment, folder, log
        self._messages = Path(tempfile.mkdtemp(prefix="schedsearch_"))
        self._process: subprocess.Popen[bytes] | None = None
        self._leases = 0

    def run(self, lease: Lease) -> LeaseReport:
        """Hand out a lease, and return at its end; at that of the command where the lease has no steps.

        Raises:
            JobError: The command cannot be started, failed, or has ended before the lease.
        """
        write_json(self._messages / f"lease_{self._leases}.json", lease)
        report, is_last = self._messages / f"did_{self._leases}.json", lease.first == lease.until
        process = self._process = self._process or self._started()
        self._leases += 1
        while (code := process.poll()) is None and (is_last or not report.exists()):
            time.sleep(_POLL_S)
        if code:
            raise JobError(f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}")
        if is_last:
            shutil.rmtree(self._messages, ignore_errors=True)
            return LeaseReport(lease.until, 0.0, 0.0)
        if not report.exists():
            raise JobError("ended before its lease")
        return LeaseReport(*json.loads(report.read_text()))

    def stop(self) -> None:
        """Let the job end at its next step, after a checkpoint."""
        (self._messages / STOP).touch()

    def kill(self) -> None:
        """End the command at once, with all that it started."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _started(self) -> subprocess.Popen[bytes]:
        own = {LEASES: str(self._messages), ACTOR: str(os.getpid())}
        given = {**os.environ, **self._environment, **own}
        try:
            with self._log.open("ab") as output:
                return subprocess.Popen(
                    self._command,
                    cwd=self._folder,
                    env=given,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise JobError(f"cannot be started ({error.strerror})") from None
