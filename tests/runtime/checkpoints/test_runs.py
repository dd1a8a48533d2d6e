"""Checkpoints: a run that died goes on to the same bits; torn files and other runs' files are not used."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest
import torch
from small_runs import change, launched

from placements.shapes import v_shape
from runtime.checkpoints.loading import check_resume, has_whole, read_parameters
from runtime.checkpoints.manifest import facts_of, manifests
from runtime.codegen.codegen import generate
from runtime.codegen.script import read_script
from runtime.execution.measurement import Measurement
from runtime.launching.launch import LaunchError
from runtime.program.calls import ScriptError
from runtime.program.lower import lower, recomputed
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.schedule import Schedule

MODEL = {"name": "synthetic", "hidden_size": 4, "sequence_length": 4, "micro_batch_size": 1}
DIED = "was ended by SIGKILL|failed: TransferError|failed: RuntimeError|failed: CheckpointError"
ADAMW = {"optimizer": "adamw", "learning_rate": 0.01, "weight_decay": 0.1}


def scripts_of(schedule: Schedule, directory: Path, **model: object) -> Path:
    generate(lower(schedule), {}, MODEL | model, directory)
    return directory


def run(directory: Path, iterations: int, launcher: str = "in_process", **options: object) -> Measurement:
    num_devices = len(list(directory.glob("device_*.py")))
    return launched(directory, num_devices, iterations, launcher=launcher, **options)  # type: ignore[arg-type]


def assert_equal_bits(first: Path, second: Path) -> None:
    """Compare the newest checkpoints of two runs."""
    ours, theirs = read_parameters(first), read_parameters(second)
    assert ours.keys() == theirs.keys() and ours
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """Return the checkpoints of three iterations of a V-shape on two devices."""
    run(
        scripts_of(one_f_one_b(v_shape(2), 4), tmp_path / "scripts"),
        3,
        checkpoint_every=1,
        checkpoints=tmp_path / "checkpoints",
        verify="none",
    )
    return tmp_path / "checkpoints"


def test_a_torn_checkpoint_is_passed_over(
    checkpoints: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    shard = checkpoints / "iteration_3/__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert run(tmp_path / "scripts", 4, resume=checkpoints).first_iteration == 2
    line = f"{shard.parent} is passed over, its file {shard.name} of device 0 is not as it was written"
    assert f"resume: {line}" in caplog.messages
    (checkpoints / "iteration_2/manifest.json").unlink()
    assert run(tmp_path / "scripts", 4, resume=checkpoints).first_iteration == 1
    (checkpoints / "iteration_1/.metadata").unlink()
    with pytest.raises(ScriptError) as error:
        run(tmp_path / "scripts", 4, resume=checkpoints)
    assert str(error.value) == (
        f"resume: {checkpoints} holds no whole checkpoint: {line}, and 1 more; give the checkpoints of an "
        "earlier run, or an empty folder to begin anew"
    )


@pytest.mark.parametrize(("name", "value"), [("iterations", "3"), ("model", None), ("files", {})])
def test_a_manifest_that_is_none_is_passed_over(
    name: str, value: object, checkpoints: Path, tmp_path: Path
) -> None:
    path = checkpoints / "iteration_3/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    facts = facts_of(read_script(tmp_path / "scripts/device_0.py"))
    resumed = check_resume(checkpoints, facts, 3)
    assert resumed.iterations == 2, "the third's would be all of them"
    assert resumed.notes == (f"resume: {path.parent} is passed over, its file manifest.json cannot be read",)


@pytest.mark.parametrize(
    ("schedule", "model", "iterations", "message"),
    [
        (one_f_one_b(v_shape(2), 4), ADAMW, 4, "model (optimizer 'sgd' instead of 'adamw')"),
        (one_f_one_b(v_shape(3), 4), {}, 4, "model (it has a parameter F1.output.norm.bias, which"),
        (one_f_one_b(v_shape(2), 4), {}, 3, "has 3 iterations done already; ask for more than that, not 3"),
    ],
    ids=["optimizer", "blocks", "done"],
)
def test_another_run_is_refused_in_one_line(
    schedule: Schedule,
    model: dict[str, object],
    iterations: int,
    message: str,
    checkpoints: Path,
    tmp_path: Path,
) -> None:
    scripts = scripts_of(schedule, tmp_path / "others", **model)
    with pytest.raises((ScriptError, LaunchError), match=re.escape(message)) as caught:
        run(scripts, iterations, resume=checkpoints)
    assert message in str(caught.value).splitlines()[0]


def test_recomputing_and_other_clocks_are_the_same_run(checkpoints: Path, tmp_path: Path) -> None:
    clocks = {name: [1410, 900, 900, 1410] for name in ("F0", "F1", "B0", "B1")}
    generate(recomputed(lower(one_f_one_b(v_shape(2), 4)), "all"), clocks, MODEL, tmp_path / "others")
    facts = facts_of(read_script(tmp_path / "others/device_0.py"))
    assert check_resume(checkpoints, facts, 4).notes == ()
    assert run(tmp_path / "others", 4, resume=checkpoints).first_iteration == 3


def test_an_older_manifest_is_gone_before_its_shards_are(checkpoints: Path, tmp_path: Path) -> None:
    """A second run into the same folder that dies while it writes must not leave the first one's manifest."""
    scripts = tmp_path / "scripts"
    prepend(scripts / "device_1.py", WRITES_NOTHING)
    with pytest.raises(LaunchError, match="was ended by SIGKILL|RuntimeError|CheckpointError"):
        run(scripts, 3, "fork", checkpoint_every=3, checkpoints=checkpoints)
    assert not (checkpoints / "iteration_3/manifest.json").exists()
    assert (checkpoints / "iteration_3").exists()


WRITES_NOTHING = """
import os, runtime.checkpoints.shards
runtime.checkpoints.shards.ShardWriter.write_data = lambda *_: os.kill(os.getpid(), 9)
"""


DYING = """
import os, runtime.checkpoints.{module} as _module

_right = _module.{function}


def _dies(first, *arguments, **options):
    if {when}:
        {before}
        os.kill(os.getpid(), 9)
    return _right(first, *arguments, **options)


_module.{function} = _dies


if __name__ == "__main__":"""

DEATHS = {
    "half a shard": (
        1,
        {
            "module": "shards",
            "function": "ShardWriter.write_data",
            "when": "first._folder.name == 'iteration_4'",
            "before": "(first._folder / '__1_0.distcp').write_bytes(b'half a shard')",
        },
        2,
    ),
    "all but the manifest": (
        0,
        {
            "module": "saving",
            "function": "write_manifest",
            "when": "first.name == 'iteration_4'",
            "before": "pass",
        },
        2,
    ),
    "half of the oldest removed": (
        0,
        {
            "module": "manifest",
            "function": "shutil.rmtree",
            "when": "first.name == 'iteration_2'",
            "before": "(first / '__0_0.distcp').unlink()",
        },
        4,
    ),
}
"""Device that dies, how, and the iterations of the checkpoint that is then the newest whole one."""


@pytest.mark.parametrize("death", DEATHS)
def test_a_kill_within_a_checkpoint_costs_no_bit(death: str, tmp_path: Path) -> None:
    """One checkpoint is kept, so the one before must outlive the writing of the next."""
    device, place, newest = DEATHS[death]
    scripts = scripts_of(one_f_one_b(v_shape(2), 4), tmp_path / "scripts", **ADAMW)
    run(scripts, 6, checkpoint_every=6, checkpoints=tmp_path / "uninterrupted", verify="none")
    text = (scripts / f"device_{device}.py").read_text()
    change(scripts / f"device_{device}.py", MAIN, DYING.format(**place))
    options = {"checkpoint_every": 2, "checkpoints": tmp_path / "killed", "keep_checkpoints": 1}
    with pytest.raises(LaunchError, match=DIED):
        run(scripts, 6, "fork", verify="none", **options)
    assert (tmp_path / f"killed/iteration_{newest}/manifest.json").exists()

    (scripts / f"device_{device}.py").write_text(text)
    assert run(scripts, 6, resume=tmp_path / "killed", verify="none", **options).first_iteration == newest
    assert_equal_bits(tmp_path / "killed", tmp_path / "uninterrupted")
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["iteration_6"]


@pytest.mark.parametrize(("kept", "expected"), [(0, [1, 2, 3, 4, 5]), (3, [3, 4, 5])])
def test_the_newest_checkpoints_are_kept(kept: int, expected: list[int], tmp_path: Path) -> None:
    scripts = scripts_of(gpipe(v_shape(2), 1), tmp_path / "scripts")
    options = {"checkpoint_every": 1, "checkpoints": tmp_path / "all", "verify": "none"}
    run(scripts, 5, keep_checkpoints=kept, **options)
    left = sorted(int(path.name.removeprefix("iteration_")) for path in (tmp_path / "all").iterdir())
    assert left == expected
    assert has_whole(tmp_path / "all")
    assert not has_whole(tmp_path / "scripts")


def test_the_manifest_is_on_the_disk_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is flushed before it gets its name, and the names of the shards before the manifest is begun."""
    happened: list[str] = []
    fsync, replaces = os.fsync, Path.replace

    def record_flush(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        happened.append(
            f"flush {path.name.lstrip('.').rpartition('.')[0] or path.name}"
        )  # without the suffix
        fsync(handle)

    def record_name(path: Path, target: Path) -> Path:
        happened.append(f"name {target.name}")
        return replaces(path, target)

    scripts = scripts_of(gpipe(v_shape(2), 1), tmp_path / "scripts")
    monkeypatch.setattr(os, "fsync", record_flush)
    monkeypatch.setattr(Path, "replace", record_name)
    run(scripts, 1, checkpoint_every=1, checkpoints=tmp_path / "all", verify="none")
    first = happened.index("flush all")
    happened = [line for line in happened[first:] if re.search("all$|iteration_1|__|metadata|manifest", line)]
    assert happened == [
        *("flush all", "flush __0_0", "flush iteration_1"),
        *("flush metadata", "flush iteration_1"),
        *("flush manifest.json", "name manifest.json", "flush iteration_1"),
    ]


MAIN = 'if __name__ == "__main__":'


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    return scripts_of(one_f_one_b(v_shape(2), 4), tmp_path / "scripts")


def kept(scripts: Path, iterations: int, launcher: str = "fork", **options: object) -> Measurement:
    options = {"checkpoints": scripts.parent / "all", "verify": "none"} | options
    return launched(scripts, 2, iterations, launcher=launcher, **options)  # type: ignore[arg-type]


def prepend(script: Path, code: str) -> None:
    """Let a device run some code before its script's main."""
    change(script, MAIN, f"{code}\n\n{MAIN}")


def assert_bits_of_an_uninterrupted_run(scripts: Path, iterations: int) -> None:
    right = scripts.parent / "right"
    kept(scripts, iterations, "in_process", checkpoint_every=iterations, checkpoints=right)
    assert_equal_bits(scripts.parent / "all", right)


FULL = """
import errno, os
from runtime.checkpoints import shards

_write = shards.ShardWriter.write_data


def _full(self, plan, planner):
    if self._folder.name == "iteration_4":
        (self._folder / "__1_0.distcp").write_bytes(b"half a shard")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return _write(self, plan, planner)


shards.ShardWriter.write_data = _full
"""


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "waits"])
def test_a_full_disk_ends_the_run_and_leaves_what_was_whole(is_async: bool, scripts: Path) -> None:
    text = (scripts / "device_1.py").read_text()
    prepend(scripts / "device_1.py", FULL)
    options = {"checkpoint_every": 2, "checkpoint_async": is_async}
    with pytest.raises(LaunchError) as caught:
        kept(scripts, 6, **options)
    line = str(caught.value).splitlines()[0]
    folder = scripts.parent / "all"
    assert line.endswith(
        f"CheckpointError: checkpoint {folder}/iteration_4: device 1 could not write it (OSError: [Errno "
        f"{errno.ENOSPC}] {os.strerror(errno.ENOSPC)}); earlier ones are as they were"
    )
    assert [manifest.iterations for manifest in manifests(folder)[0]] == [2]
    (scripts / "device_1.py").write_text(text)
    assert kept(scripts, 6, resume=folder, **options).first_iteration == 2
    assert_bits_of_an_uninterrupted_run(scripts, 6)


SLOW = """
import time
from pathlib import Path
from runtime.checkpoints import shards

_write = shards.ShardWriter.write_data
_seen = Path(__file__).with_name("iteration_6_ran")


def _slow(self, plan, planner):
    while self._folder.name == "iteration_4" and not _seen.exists():
        time.sleep(0.01)
    return _write(self, plan, planner)


shards.ShardWriter.write_data = _slow
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
    assert kept(scripts, 8, checkpoint_every=4).iterations == 8
    assert [manifest.iterations for manifest in manifests(scripts.parent / "all")[0]] == [8, 4]


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
        kept(scripts, 6)
    folder = scripts.parent / "all"
    line = f"TerminatedError: SIGTERM: ended after 3 iterations, which are in {folder}/iteration_3"
    assert str(caught.value).splitlines()[0].endswith(line)
    assert (scripts / "device_1.py.clock").exists(), "the clock is given back"
    (scripts / "device_1.py").write_text(text)
    assert kept(scripts, 6, resume=folder, checkpoint_every=6).first_iteration == 3
    assert_bits_of_an_uninterrupted_run(scripts, 6)
