"""A line of a script is changed: the check says that it is still safe, or where and why it is not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from one_line_errors import raises_line
from places import GOLDEN
from small_runs import change, comparison_of, launched

from runtime.check import check_file, main
from runtime.program.calls import ScriptError
from runtime.program.deadlock import UnsafeProgramsError

IN_LOOP = " " * 8
WARMUP = " " * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The scripts of 1F1B on two devices, with a loop."""
    return Path(shutil.copytree(GOLDEN / "scripts", tmp_path / "v_shape"))


def line_of(script: Path, part: str) -> int:
    (number,) = [i for i, line in enumerate(script.read_text().splitlines(), 1) if line.strip() == part]
    return number


def test_an_earlier_receive_is_safe_and_trains_the_same(folder: Path) -> None:
    """The third receive of device 1 is taken out of its loop, and prefetched before the first block."""
    receive = 'device.receive("F0", "F1", 0, source=0)\n'
    second = 'device.prefetch("F0", "F1", 1, source=0)\n'
    script = folder / "device_1.py"
    change(script, f"{WARMUP}{second}", "")
    change(script, f"{WARMUP}{receive}", f"{WARMUP}{receive}{WARMUP}{second}")
    change(folder / "device_0.py", f"{WARMUP}# Warmup.\n", f"{WARMUP}# Warmup, as it was.\n")
    before = launched(GOLDEN / "scripts", 2, 2, launcher="in_process")
    assert "finish even if" in check_file(folder)
    after = launched(folder, 2, 2, launcher="in_process")
    assert comparison_of(after).bitwise_equal
    assert after.losses == before.losses


UNSAFE = {
    "receives swapped": (
        'device.receive("F0", "F1", 0, source=0)',
        'device.receive("F0", "F1", 1, source=0)',
        r"device 1 .* F0 for F1 of micro-batch 1 twice \(device_1.py line {line}, device_1.py line \d+\)",
    ),
    "block twice": (
        'device.send("B1", "B0", 0, target=0)',
        'device.backward("B1", 0, clock_mhz=1410)',
        r"device 1 runs B1 of micro-batch 0 twice \(device_1.py line \d+, device_1.py line {line}\)",
    ),
    "unknown block": (
        'device.forward("F1", 0, clock_mhz=1410)',
        'device.forward("F7", 0, clock_mhz=1410)',
        r"device 1 runs F7 of micro-batch 0, which is none of its blocks .*\(device_1.py line {line}\)",
    ),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_an_unsafe_change_is_named_with_device_line_and_reason(
    case: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, message = UNSAFE[case]
    script = folder / "device_1.py"
    number = line_of(script, old)
    change(script, old, new)
    assert main([str(folder)]) == 1
    first, *grid = capsys.readouterr().out.splitlines()
    assert re.match(re.escape(f"{folder}: unsafe: ") + message.format(line=number), first), first
    assert "[" in "".join(grid)


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        (
            'device.forward("F1", n, clock_mhz=1410)',
            'device.backward("B1", n, clock_mhz=1410)',
            "run B1 #1' before it runs F1",
        ),
        (
            'device.backward("B1", 0, clock_mhz=1410)',
            'device.send("B1", "B0", 0, target=0)',
            "send B1 -> B0 #0 to 0' before it runs B1",
        ),
    ],
)
def test_swapped_lines_are_named(first: str, second: str, what: str, folder: Path) -> None:
    script = folder / "device_1.py"
    number = line_of(script, first)
    indent = IN_LOOP if "n" in first.split(",")[1] else WARMUP
    change(script, f"{first}\n{indent}{second}\n", f"{second}\n{indent}{first}\n")
    with pytest.raises(UnsafeProgramsError) as caught:
        check_file(folder)
    said = str(caught.value).splitlines()[0]
    assert said == f"device 1 has '{what} of that micro-batch (device_1.py line {number})"


def test_messages_of_a_channel_in_another_order_name_both_ends(folder: Path) -> None:
    script = folder / "device_1.py"
    late = 'device.prefetch("F0", "F1", 1, source=0)'
    change(script, f"{WARMUP}{late}\n", "")
    receive = 'device.receive("F0", "F1", 0, source=0)'
    change(script, receive, f"{late}\n{WARMUP}{receive}")
    places = line_of(folder / "device_0.py", 'device.send("F0", "F1", 0, target=1)'), line_of(script, late)
    with pytest.raises(UnsafeProgramsError) as caught:
        check_file(folder)
    assert str(caught.value).splitlines()[0] == (
        "device 0 sends F0 for F1 of micro-batch 0 to device 1, which there receives F0 for F1 of "
        "micro-batch 1 (device_0.py line {}, device_1.py line {})".format(*places)
    )


UNREADABLE = {
    "wrong verb": (
        'device.forward("F1", 0, clock_mhz=1410)',
        'device.backward("F1", 0)',
        "line {line}: backward of F1, a block of kind F; write forward",
    ),
    "unknown verb": (
        'device.forward("F1", 0, clock_mhz=1410)',
        'device.forwards("F1", 0)',
        "line {line}: forwards is no action; write forward, backward, backward_input, backward_weight, "
        "recompute, send",
    ),
    "unknown name": (
        'device.forward("F1", 0, clock_mhz=1410)',
        'device.forward("F1", m)',
        "line {line}: fails (NameError: name 'm' is not defined)",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_line_that_makes_no_sense_is_named(
    case: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, message = UNREADABLE[case]
    script = folder / "device_1.py"
    change(script, old, new)
    number = next(i for i, line in enumerate(script.read_text().splitlines(), 1) if new in line)
    assert main([str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{script}: {message.format(line=number)}")
    assert error.count("\n") == 1


def test_a_script_that_would_train_when_it_is_read_is_named(folder: Path) -> None:
    script = folder / "device_1.py"
    change(script, 'if __name__ == "__main__":\n    train()', "train()")
    with raises_line(ScriptError, match=r"device_1.py: line \d+: fails \(ScriptError: this is one of "):
        check_file(folder)
