"""The options of a run have one default each, in the command and in the code."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from experiments.config.declaring import own_options
from experiments.run.options import RuntimeOptions
from runtime.execution.run_options import RunOptions
from runtime.models import ModelOptions
from runtime.options.model import UserModelOptions
from runtime.options.run import UserRunOptions

DEFAULTS = {
    "iterations": 1,
    "launcher": "torchrun",
    "device": None,
    "backend": None,
    "timeout_s": 300.0,
    "meeting": "env://",
    "results": None,
    "blocking": False,
    "sweep": None,
    "num_micro_batches": None,
    "checkpoint_every": 0,
    "checkpoints": None,
    "keep_checkpoints": 3,
    "resume": None,
    "trace": False,
    "trace_file": None,
    "clock_latency": None,
    "checkpoint_async": True,
    "verify": None,
    "exact": None,
    "programs": None,
    "order_ahead_ms": None,
    "order_ahead_work": None,
    "post_validation": False,
    "load_weights": None,
    "save_weights": None,
    "communicators": "auto",
    "nodes": 1,
    "arrival_rate": None,
    "arrivals": "poisson",
    "arrival_seed": 0,
    "profile_online": False,
}

OTHERS = {"iterations", "timeout_s", "launcher"}
"""Of the command's group: it runs three iterations, with more time, and may start none of them."""


def test_the_defaults_of_a_run_are_these() -> None:
    assert {each.name: each.default for each in fields(RunOptions)} == DEFAULTS


def test_the_command_has_the_same_defaults() -> None:
    group: dict[str, Any] = {each.name: each.default for each in own_options(RuntimeOptions)}
    both = (group.keys() & DEFAULTS.keys()) - OTHERS
    assert group["launcher"] == DEFAULTS["launcher"]
    assert {"keep_checkpoints", "checkpoint_every", "checkpoint_async", "communicators", "nodes"} <= both
    assert {name: group[name] for name in both} == {name: DEFAULTS[name] for name in both}
    assert (group["iterations"], group["timeout_s"]) == (3, 600)


def test_the_command_repeats_no_option_of_a_run_or_of_a_model() -> None:
    """A folder to go on with is another thing to each: a command's output, or a folder of checkpoints."""
    own = set(vars(RuntimeOptions)["__annotations__"])
    declared = {each.name for each in (*fields(RunOptions), *fields(ModelOptions))}
    assert own & declared == OTHERS | {"resume"}
    shared = {each.name for each in (*fields(UserRunOptions), *fields(UserModelOptions))}
    assert {each.name for each in fields(RuntimeOptions)} >= shared
