"""Times of the blocks of a run, from traces of torch's profiler, of Nsight Systems, or of our own runs."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import NamedTuple

from schedsearch.traces.chrome import CHROME
from schedsearch.traces.labelled import OnProgress, operations, read_files
from schedsearch.traces.nsight import NSIGHT
from schedsearch.traces.table import TraceError


class BlockTimes(NamedTuple):
    """Times of the runs of a block in ms, and the number of runs."""

    median_ms: float
    min_ms: float
    max_ms: float
    num_runs: int


def block_times(
    path: str | Path, pattern: str | None = None, on_progress: OnProgress | None = None
) -> dict[str, BlockTimes]:
    """Return the times of blocks in a trace, or in all traces of a folder.

    Args:
        path: A file of `read_chrome` or `read_nsight`, or a folder of them.
        pattern: Pattern of the labels; see `schedsearch.traces.labels.label_reader`.
        on_progress: Called with a name, the part of a file that is read, and all of it.

    Returns:
        The times by the name of the block, in the order of the first runs.

    Raises:
        TraceError: A file cannot be read, an event of it is wrong, no label is a block's, or a block takes no
            time or has none of its own.
    """
    path = Path(path)
    names = [file.name for file in path.iterdir()] if path.is_dir() else [path.name]
    form = NSIGHT if any(name.endswith(NSIGHT.endings) for name in names) else CHROME
    runs = defaultdict[str, list[float]](list)
    for block, span in operations(read_files(form, path, pattern, on_progress)):
        if block is not None:
            runs[block].append(span.end_ms - span.start_ms)
    times = {block: BlockTimes(median(ms), min(ms), max(ms), len(ms)) for block, ms in runs.items()}
    if none := [block for block, figures in times.items() if not figures.median_ms]:
        raise TraceError(f"{path}: {none[0]} takes 0 ms in most runs; trace it with its kernels")
    return times
