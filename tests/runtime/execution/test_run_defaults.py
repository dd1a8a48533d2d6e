"""The options of a run have one default each, in the command line, in the code and in what help says."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from typing import Any

import pytest

from experiments.config.declaring import own_options
from experiments.run.options import RuntimeOptions
from runtime.execution.run_options import RunOptions

DEFAULTS = {
    "iterations": 1,
    "backend": "gloo",
    "timeout_s": 300.0,
    "results": None,
    "blocking": False,
    "meeting": "env://",
    "sweep": None,
    "num_micro_batches": None,
    "checkpoint_every": 0,
    "checkpoints": None,
    "keep_checkpoints": 3,
    "resume": None,
    "torch_device": "cpu",
    "records": False,
    "trace": None,
    "clock_latency": None,
    "checkpoint_async": True,
    "verify": "none",
    "exact": None,
    "load_weights": None,
    "save_weights": None,
    "communicators": "auto",
    "nodes": 1,
}

OTHERS = {"iterations", "timeout_s", "trace", "verify"}
"""Of the command's group: it runs three iterations, with more time, and its trace has a name of its own."""


def test_the_defaults_of_a_process_are_these() -> None:
    given = {each.name: each.default for each in fields(RunOptions) if each.default is not MISSING}
    assert given == DEFAULTS


def test_the_command_has_the_same_defaults() -> None:
    group: dict[str, Any] = {each.name: each.default for each in own_options(RuntimeOptions)}
    both = (group.keys() & DEFAULTS.keys()) - OTHERS
    assert {"keep_checkpoints", "checkpoint_every", "checkpoint_async", "communicators", "nodes"} <= both
    assert {name: group[name] for name in both} == {name: DEFAULTS[name] for name in both}
    assert (group["iterations"], group["timeout_s"]) == (3, 600)


@pytest.mark.parametrize(
    "each",
    [each for each in fields(RunOptions) if "default" in str(each.metadata.get("argument"))],
    ids=lambda each: each.name,
)
def test_the_help_names_the_default_that_holds(each: Any) -> None:
    text = each.metadata["argument"]["help"]
    for said in re.findall(r"\(default (\d+)", text):
        assert float(said) == float(each.default), text
