"""What may go wrong around a checkpoint: each ends or goes on as documented, and no whole one is lost."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from places import ROOT
from small_runs import launched

from placements.shapes import v_shape
from runtime.checkpoints import shards
from runtime.checkpoints.loading import has_whole, read_parameters
from runtime.checkpoints.manifest import manifests
from runtime.codegen.codegen import generate
from runtime.execution.measurement import Measurement
from runtime.launching.launch import LaunchError
from runtime.loops.run_checkpoints import TERMINATED
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b

MODEL = {"name": "synthetic", "hidden_size": 4, "sequence_length": 4, "micro_batch_size": 1}
MAIN = 'if __name__ == "__main__":'


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    generate(lower(one_f_one_b(v_shape(2), 4)), {}, MODEL, tmp_path / "scripts")
    return tmp_path / "scripts"


def run(scripts: Path, iterations: int, launcher: str = "fork", **options: object) -> Measurement:
    options = {"checkpoints": scripts.parent / "all", "verify": "none"} | options
    return launched(scripts, 2, iterations, launcher=launcher, **options)  # type: ignore[arg-type]


def prepend(script: Path, code: str) -> None:
    """Let a device run some code before its script's main."""
    text = script.read_text()
    assert text.count(MAIN) == 1
    script.write_text(text.replace(MAIN, f"{code}\n\n{MAIN}"))


def assert_bits_of_an_uninterrupted_run(scripts: Path, iterations: int) -> None:
    right = scripts.parent / "right"
    run(scripts, iterations, "in_process", checkpoint_every=iterations, checkpoints=right)
    ours, theirs = read_parameters(scripts.parent / "all"), read_parameters(right)
    assert ours.keys() == theirs.keys() and ours
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


FULL = """
import errno, os
from runtime.checkpoints import shards

_write = shards._DigestingStream.write


def _full(self, data):
    if "iteration_4" in str(self._stream.name):
        _write(self, bytes(data)[:9])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return _write(self, data)


shards._DigestingStream.write = _full
"""


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "waits"])
def test_a_full_disk_ends_the_run_and_leaves_what_was_whole(is_async: bool, scripts: Path) -> None:
    text = (scripts / "device_1.py").read_text()
    prepend(scripts / "device_1.py", FULL)
    options = {"checkpoint_every": 2, "checkpoint_async": is_async}
    with pytest.raises(LaunchError) as caught:
        run(scripts, 6, **options)
    line = str(caught.value).splitlines()[0]
    folder = scripts.parent / "all"
    assert line.endswith(
        f"CheckpointError: checkpoint {folder}/iteration_4: device 1 could not write it (OSError: [Errno "
        f"{errno.ENOSPC}] {os.strerror(errno.ENOSPC)}); earlier ones are as they were"
    )
    assert [manifest.iterations for manifest in manifests(folder)] == [2]
    (scripts / "device_1.py").write_text(text)
    assert run(scripts, 6, resume=folder, **options).first_iteration == 2
    assert_bits_of_an_uninterrupted_run(scripts, 6)


def test_a_full_disk_of_one_process(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    run(scripts, 2, "in_process", checkpoint_every=2)
    monkeypatch.setattr(shards._DigestingStream, "write", full)
    with pytest.raises(LaunchError, match=r"iteration_4: device 0 could not write it \(OSError: .*No space"):
        run(scripts, 4, "in_process", checkpoint_every=4)
    assert [path.name for path in (scripts.parent / "all").iterdir()] == ["iteration_2"]


def test_a_corrupt_file_is_passed_over_and_named(scripts: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run(scripts, 4, checkpoint_every=2)
    path = scripts.parent / "all/iteration_4/__1_0.distcp"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert run(scripts, 6, resume=scripts.parent / "all", checkpoint_every=2).first_iteration == 2
    assert caplog.messages == [
        f"resume: {path.parent} is passed over, its file __1_0.distcp of device 1 is not as it was written"
    ]
    assert_bits_of_an_uninterrupted_run(scripts, 6)


SLOW = """
import time
from pathlib import Path
from runtime.checkpoints import shards

_write = shards._DigestingStream.write
_seen = Path(__file__).with_name("iteration_6_ran")


def _slow(self, data):
    if "iteration_4" in str(self._stream.name):
        while not _seen.exists():
            time.sleep(0.01)
    return _write(self, data)


shards._DigestingStream.write = _slow
_iteration = iteration


def iteration(device, *arguments):
    iteration.ran = getattr(iteration, "ran", 0) + (type(device).__name__ == "Device")
    if iteration.ran == 6:
        _seen.touch()
    return _iteration(device, *arguments)
"""


def test_training_goes_on_while_a_disk_is_slow(scripts: Path) -> None:
    """The files of the fourth iteration are not written before the sixth has begun."""
    prepend(scripts / "device_0.py", SLOW)
    assert run(scripts, 8, checkpoint_every=4).iterations == 8
    assert [manifest.iterations for manifest in manifests(scripts.parent / "all")] == [8, 4]
    (scripts / "iteration_6_ran").unlink()
    options = {"checkpoint_every": 4, "checkpoints": scripts.parent / "again", "checkpoint_async": False}
    with pytest.raises(LaunchError, match="no progress"):
        launched(scripts, 2, 8, 3, launcher="fork", verify="none", **options)  # type: ignore[arg-type]


TERMINATES = """
import os, signal
from runtime.clocks.clock import RecordingClock

_iteration, _reset = iteration, RecordingClock.reset


def iteration(device, *arguments):
    iteration.ran = getattr(iteration, "ran", 0) + (type(device).__name__ == "Device")
    if iteration.ran == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    return _iteration(device, *arguments)


def _given_back(self):
    open(__file__ + ".clock", "w").close()
    _reset(self)


RecordingClock.reset = _given_back
"""


def test_a_run_that_is_told_to_end_leaves_a_checkpoint(scripts: Path) -> None:
    """One device gets SIGTERM within the third iteration; all end after it, though none was due."""
    text = (scripts / "device_1.py").read_text()
    prepend(scripts / "device_1.py", TERMINATES)
    with pytest.raises(LaunchError) as caught:
        run(scripts, 6)
    folder = scripts.parent / "all"
    line = f"TerminatedError: SIGTERM: ended after 3 iterations, which are in {folder}/iteration_3"
    assert str(caught.value).splitlines()[0].endswith(line)
    assert (scripts / "device_1.py.clock").exists(), "the clock is given back"
    (scripts / "device_1.py").write_text(text)
    assert run(scripts, 6, resume=folder, checkpoint_every=6).first_iteration == 3
    assert_bits_of_an_uninterrupted_run(scripts, 6)


def test_torchrun_that_is_told_to_end_lets_its_devices_write(scripts: Path) -> None:
    """As Slurm and Kubernetes do it: SIGTERM to torchrun, and some time for what follows."""
    folder = scripts.parent / "all"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "runtime.launch", str(scripts), "--iterations", "1000000", "--checkpoints", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("iteration 3"):
            process.send_signal(signal.SIGTERM)
            break
    rest, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert has_whole(folder), "".join(lines) + rest
    found = re.search(r"^SIGTERM: ended after (\d+) iterations, which are in (.*)$", rest, re.MULTILINE)
    assert found is not None, rest
    assert [str(manifest.folder) for manifest in manifests(folder)] == [found[2]]
    assert TERMINATED == 143
