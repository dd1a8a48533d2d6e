"""Options of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.config.declaring import Command
from experiments.config.options import OptionError
from experiments.frontier.options import FrontierCommandOptions
from experiments.search.options import OF_ONE_PIPELINE, PRESETS, read_options
from placements.forms.meaning import Verbatim, group, inherited, option
from runtime.options.model import UserModelOptions
from runtime.options.run import LAUNCHERS, UserRunOptions
from runtime.program.lower import SCATTER

NO_LAUNCHER = "none"
"""A value of ``runtime.launcher``: the job is written, and nothing is started."""

GIVEN_MODEL = "given"
"""A value of ``runtime.model``: its modules are in a script of the user's own."""


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """The model of a run, which help names first."""

    model: str = option(
        "auto",
        "gpt | mt5 | flava | moe | synthetic | auto: the first that fits | module: your own | given: to "
        "runtime.Pipeline",
        choices=("auto", "gpt", "mt5", "flava", "moe", "synthetic", "module", "given"),
    )


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions(UserRunOptions, UserModelOptions, ModelChoice):
    """The `runtime` group: options of the model, the run and the scripts."""

    iterations: int = inherited(UserRunOptions, "iterations", 3)
    timeout_s: float = inherited(UserRunOptions, "timeout_s", 600)
    launcher: str = inherited(
        UserRunOptions,
        "launcher",
        "torchrun",
        text="torchrun | fork (CPU only) | in_process: threads that take turns | none: only write the job",
        choices=(*LAUNCHERS, NO_LAUNCHER),
    )
    resume: Verbatim | None = option(None, "output directory of a run that stopped, or folder of checkpoints")
    recompute: str | tuple[Any, ...] | None = option(
        None, "forward blocks computed again in every micro-batch, as in [F0,F1]; or all; null: the plan's"
    )
    receive_ahead: int | None = option(
        None,
        "number of blocks of its device by which a receive may be posted early; null: 1, with blocking 0",
        min=0,
    )
    receive_memory: int | None = option(
        None, "memory per device of receives posted early; null: no bound", "bytes", min=0
    )
    scatter: str = option(
        "auto",
        "a tensor goes in parts to GPUs that compute a block together, which gather it: auto: from node to "
        "node | always | never",
        choices=SCATTER,
    )
    simulated_gpus: bool = option(
        False, "true: the scripts also run in virtual time, at the clocks of the plan"
    )
    server: str | None = option(
        None,
        "URL of a server whose plans the run follows | own: one is started for it; null: the plan's clocks",
    )
    clocks: bool = option(
        True, "true: the scripts have the clocks of the plan; false: none, as a server sets them"
    )

    def __post_init__(self) -> None:
        follows, is_given = self.server is not None, self.model == GIVEN_MODEL
        for is_wrong, reason in (
            (
                not follows and self.profile_online,
                "profile_online: there is no server to upload to; give runtime.server=own, or its URL",
            ),
            (
                follows and self.launcher == NO_LAUNCHER,
                "server: nothing is started that could follow it; use another runtime.launcher, or "
                "runtime.clocks=false, and start your own loop with SCHEDSEARCH_SERVER and SCHEDSEARCH_JOB",
            ),
            (
                follows and self.num_micro_batches is not None,
                "num_micro_batches: the server's plans are for those of the schedule; use "
                "search.num_micro_batches",
            ),
            (
                self.has_clocks and self.programs is not None,
                "clocks: true makes clocks for one order of the blocks, and iterations run others; use "
                "runtime.clocks=false",
            ),
            (
                self.simulated_gpus and not self.has_clocks,
                "simulated_gpus: needs scripts with clocks; use runtime.clocks=true",
            ),
            (
                is_given and self.launcher != NO_LAUNCHER,
                f"model: {GIVEN_MODEL} has no modules to run here; use runtime.launcher={NO_LAUNCHER}, "
                "which only writes the job, and start your own script",
            ),
            (
                is_given and self.zero == 3,
                "zero: 3 cannot be run in a loop of one's own; use 0, and `Pipeline.zero1` there",
            ),
            (
                is_given and self.receive_memory is not None,
                f"receive_memory: the sizes of the messages of the model {GIVEN_MODEL!r} are not known; "
                "leave it out (null)",
            ),
        ):
            if is_wrong:
                raise OptionError(f"runtime.{reason}")

    @property
    def has_clocks(self) -> bool:
        """Whether the scripts have clocks of their own, not a server's."""
        return self.clocks and self.server is None


@dataclass(frozen=True, kw_only=True)
class RunCommandOptions(FrontierCommandOptions):
    """The config of `experiments.run`."""

    runtime: RuntimeOptions = group(headline="The run")


COMMAND = Command(
    "run",
    RunCommandOptions,
    task="experiments.run.task",
    read=read_options,
    first="placement placement.path search.num_micro_batches energy.slowdown runtime.model runtime.launcher",
    presets=PRESETS,
    objective="energy_j",
    refused=OF_ONE_PIPELINE,
    needs_torch=True,
)
