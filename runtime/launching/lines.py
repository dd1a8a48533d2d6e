"""The line of torchrun on each node of a run, and how many devices each has.

Processes are numbered node by node, as the devices of a placement are. Nodes find each other by torchrun's
static rendezvous, so that each has the devices that it is meant to have: with the rendezvous ``c10d``
torchrun would choose which node has device 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from placements import Placement
from runtime.program.calls import ScriptError


def devices_of_nodes(placement: Placement, nodes: int | None = None) -> tuple[int, ...]:
    """Return the number of processes that each node starts.

    One node has all devices; by default the nodes are those of the placement, with one GPU a device.

    Raises:
        ScriptError: The placement has another number of nodes, or its devices are no multiple of them.

    >>> from dataclasses import replace
    >>> from placements.shapes import v_shape
    >>> devices_of_nodes(v_shape(4), 2), devices_of_nodes(replace(v_shape(3), nodes=(0, 0, 1)))
    ((2, 2), (2, 1))
    """
    own = placement.gpus_of_nodes
    if nodes == 1:
        return (placement.num_devices,)
    if nodes is None or nodes == len(own):
        return own
    if placement.nodes is not None:
        raise ScriptError(
            f"nodes: {nodes} are not the {len(own)} that the placement has its devices on; use {len(own)}"
        )
    if placement.num_devices % nodes:
        raise ScriptError(
            f"nodes: {nodes} do not divide the {placement.num_devices} devices; use a divisor, or give the "
            "placement its nodes"
        )
    return (placement.num_devices // nodes,) * nodes


def check_launcher_of_nodes(launcher: str, nodes: int) -> None:
    """Ensure that a launcher can start devices on this number of nodes."""
    if nodes > 1 and launcher != "torchrun":
        raise ScriptError(f"nodes: {nodes} need launcher 'torchrun', {launcher!r} has one; use it")


def torchrun_arguments(devices: Sequence[int], node: int, port: int) -> list[str]:
    """Return the arguments of torchrun, up to the program, on one of the nodes, which meet at a free port."""
    if len(devices) == 1:
        return ["--standalone", "--nproc-per-node", str(devices[0])]
    own = ["--nnodes", str(len(devices)), "--node-rank", str(node), "--nproc-per-node", str(devices[node])]
    return [*own, "--master-addr", "127.0.0.1", "--master-port", str(port)]
