"""The lines that start a run by torchrun, on one node or on several.

Processes are numbered node by node, as the devices of a placement are. Nodes find each other by torchrun's
static rendezvous, so that each has the devices that it is meant to have: with the rendezvous ``c10d``
torchrun would choose which node has device 0.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from placements import Placement
from runtime.codegen.script import programs_of, read_scripts
from runtime.execution.run_options import RunOptions, add_arguments, as_arguments
from runtime.program.calls import ScriptError
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.transport.communicators import AUTO
from runtime.virtual.play import cheapest_sharing

PRINT = "print"
"""The word that asks ``-m runtime.launch`` for the lines instead of a run."""

_PORT = 29500

_BATCH = """#!/bin/bash
#SBATCH --nodes={nodes} --ntasks-per-node=1 --gpus-per-node={most}
export HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c '{devices}torchrun {torchrun}'
"""


def devices_of_nodes(placement: Placement, nodes: int | None = None) -> tuple[int, ...]:
    """Return how many processes each node starts.

    Args:
        placement: Each device one GPU.
        nodes: How many nodes there are: one has all devices; by default those of the placement.

    Raises:
        ScriptError: The placement has another number of nodes, or one and its devices are no multiple.

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
    """Ensure that a launcher can start devices on this number of nodes.

    Raises:
        ScriptError: It does not.
    """
    if nodes > 1 and launcher != "torchrun":
        raise ScriptError(f"nodes: {nodes} need launcher 'torchrun', {launcher!r} has one; use it")


def torchrun_arguments(
    devices: Sequence[int], node: int | str, head: str = "127.0.0.1", port: int | str = _PORT
) -> list[str]:
    """Return the arguments of torchrun on a node, up to the program.

    Args:
        devices: How many each node has.
        node: Which; or what tells it in a shell.
        head: Node 0, as the others reach it.
        port: Free there.
    """
    if len(devices) == 1:
        return ["--standalone", "--nproc-per-node", str(devices[0])]
    own = str(devices[node]) if isinstance(node, int) else _own_devices(devices)
    return [
        *("--nnodes", str(len(devices)), "--node-rank", str(node), "--nproc-per-node", own),
        *("--master-addr", head, "--master-port", str(port)),
    ]


def launch_lines(directory: str | Path, devices: Sequence[int], options: Sequence[str], head: str) -> str:
    """Return a line for each node, to be started there.

    Args:
        directory: Directory of the scripts, in a file system that all nodes see.
        devices: How many each node has.
        options: Of ``-m runtime.launch``.
        head: Node 0, as the others reach it.
    """
    program = ["-m", "runtime.launch", str(directory), *options]
    lines = []
    for node in range(len(devices)):
        lines += [f"# on node {node}"] * (len(devices) > 1)
        lines.append(shlex.join(["torchrun", *torchrun_arguments(devices, node, head), *program]))
    return "\n".join(lines) + "\n"


def batch_file(directory: str | Path, devices: Sequence[int], options: Sequence[str]) -> str:
    """Return a batch file of Slurm; see `launch_lines`."""
    program = shlex.join(["-m", "runtime.launch", str(directory), *options])
    torchrun = " ".join(torchrun_arguments(devices, "$SLURM_NODEID", "$HEAD"))
    array = "" if len(set(devices)) == 1 else f"DEVICES=({' '.join(map(str, devices))}); "
    return _BATCH.format(
        nodes=len(devices),
        most=max(devices),
        devices=array,
        torchrun=f"{torchrun} {program}".replace("'", "'\\''"),
    )


def main(arguments: Sequence[str]) -> int:
    """Print the lines that run a folder of scripts, once their programs are proved; return the exit code.

    Args:
        arguments: Arguments of the command line, after ``print``.
    """
    parser = argparse.ArgumentParser(prog=f"python -m runtime.launch {PRINT}")
    parser.add_argument("directory", type=Path, help="folder of device_0.py and so on")
    parser.add_argument("--nodes", type=int, help="how many machines; by default those of the placement")
    parser.add_argument("--head", default="HEAD", help="name of the first, as the others reach it")
    parser.add_argument("--sbatch", action="store_true", help="print a batch file of Slurm")
    add_arguments(parser)
    given = vars(parser.parse_args(arguments))
    directory, nodes = given.pop("directory"), given.pop("nodes")
    head, is_batch = given.pop("head"), given.pop("sbatch")
    try:
        if nodes is not None and nodes < 1:
            raise ScriptError(f"nodes: {nodes} is not at least 1")
        scripts = read_scripts(directory)
        programs = check(programs_of([each.at(given.get("num_micro_batches")) for each in scripts]))
        devices = devices_of_nodes(programs.placement, nodes)
        RunOptions(**given).check()
    except (ScriptError, UnsafeProgramsError) as error:
        sys.stderr.write(f"runtime.launch: {error}\n")
        return 1
    if given.get("communicators", AUTO) == AUTO:
        given["communicators"] = str(cheapest_sharing(programs))
    options = as_arguments(given)
    text = (
        batch_file(directory, devices, options)
        if is_batch
        else launch_lines(directory, devices, options, head)
    )
    sys.stdout.write(text)
    return 0


def _own_devices(devices: Sequence[int]) -> str:
    """Return how many devices a node has, where a shell knows the nodes' numbers."""
    return str(devices[0]) if len(set(devices)) == 1 else "${DEVICES[$SLURM_NODEID]}"
