"""The docstring of a script: of which job it is, how all are started, and the schedule as a picture."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence

from placements import Placement
from schedsearch.picture import shortened

PICTURE_WIDTH = 106
"""Characters of a picture's line that leave room for the arrow."""


def launch_lines(devices_of_nodes: Sequence[int], folder: str) -> list[str]:
    """Return how the scripts of a folder are started, on one node and on several.

    One node has all devices where nobody has said which they have.
    """
    num_devices, num_nodes = sum(devices_of_nodes), len(devices_of_nodes)
    scripts = f"-m runtime.launch {shlex.quote(folder)}"
    lines = [
        "Start all devices, from the folder above this one, on one node with",
        f"    torchrun --nproc-per-node {num_devices} {scripts}",
    ]
    if num_devices == 1:
        return lines
    # Which node has which devices is the placement's matter; with the rendezvous c10d torchrun would choose.
    nodes, own = str(num_nodes), str(devices_of_nodes[0])
    has = f"{num_nodes} nodes with {own} devices each"
    if num_nodes == 1:
        nodes, own = "N", "G"
        has = f"N nodes with G devices each (N x G = {num_devices})"
    elif len(set(devices_of_nodes)) > 1:
        own = "G"
        has = f"{num_nodes} nodes with G = {', '.join(map(str, devices_of_nodes))} devices"
    return [
        *lines,
        f"or on {has}, on node R from 0 on, node 0 being HOST, with",
        f"    torchrun --nnodes {nodes} --node-rank R --nproc-per-node {own} --master-addr HOST {scripts}",
    ]


def header(
    placement: Placement,
    device: int,
    row: int | None,
    title: str,
    folder: str,
    picture: str,
    versions: Mapping[str, str],
) -> str:
    """Return the docstring of a device's script.

    The title, the picture (with rows ``<device> | ...``, or none) and the versions are those of
    `runtime.codegen.codegen.generate`; the row is the script's in the picture, where a row stands for several
    GPUs.
    """
    which = "" if row is None else f", a GPU of the schedule's device {row},"
    made_with = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        f"Device {device} of {placement.num_devices}{which} of {' '.join(title.split())}.",
        *([f"Made with {made_with}."] if made_with else []),
        *_picture(picture, device if row is None else row),
        "",
        *launch_lines(placement.gpus_of_nodes, folder),
        "",
        "You may change the lines below. Whether they are still safe tells",
        f"    python -m runtime.check {shlex.quote(folder)}",
        "Model and placement are in job.json beside this script.",
    ]
    return '"""' + "\n".join(map(_docstring_line, lines)) + '\n"""'


def _picture(picture: str, row: int) -> list[str]:
    """Return the picture's lines with arrows at one device, after an empty line; of many only some."""
    lines, is_row = list[str](), re.compile(r" *\d+ \|").match
    for are_rows, group in itertools.groupby(picture.splitlines(), lambda line: bool(is_row(line))):
        found = [*group]
        lines += shortened(found, row) if are_rows else found
    marked = [("  > " if line.lstrip().startswith(f"{row} |") else "    ") + line for line in lines]
    return ["", *marked] if marked else []


def _docstring_line(line: str) -> str:
    """Return text that a docstring shows as the line, whatever it holds."""
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line.rstrip())
    return visible.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
