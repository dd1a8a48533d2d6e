"""Sweeps on Ray, ``-m hydra/launcher=ray``: points are tasks of a cluster, or of Ray on this machine."""

from __future__ import annotations

import importlib.util
import logging
import math
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, configure_log, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from experiments.config.declaring import command_of
from experiments.config.run_record import FAILED, RunRecord, how_to_resume
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.side_by_side import on_ray

log = logging.getLogger(__name__)

_NAME = "hydra_plugins.schedsearch.RayLauncher"
"""Name for Hydra, which takes only plugins whose names begin so."""


class RayLauncher(Launcher):
    """Runs the points of a sweep as tasks of Ray.

    A point whose worker or node dies is tried again on another one, and is at last a failed point. The
    folders of the sweep and of the command are the same on all nodes.
    """

    def __init__(self, num_cpus: float) -> None:
        """Take the number of cores of a point; the cores of the cluster decide how many run at a time."""
        self._num_cpus = num_cpus

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take the task and the config of the command."""
        self._context, self._task, self._config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the points; return their ends in order, failed ones too.

        Raises:
            ValueError: The cores of a point are not a number above 0.
            SystemExit: Ctrl-C came, and the running points have written their records.
        """
        if not isinstance(self._num_cpus, int | float) or self._num_cpus <= 0:
            raise ValueError(f"hydra.launcher.num_cpus: {self._num_cpus} is not a number above 0; give one")
        setup_globals()
        hydra, returns = self._config.hydra, dict[int, JobReturn]()
        configure_log(hydra.hydra_logging, hydra.verbose)
        log.info("Launching %d jobs on Ray", len(job_overrides))
        points = list[Callable[[TaskFunction], JobReturn]]()
        for i, given in enumerate(job_overrides, initial_job_idx):
            config = self._context.config_loader.load_sweep_config(self._config, list(given))
            with open_dict(config):
                config.hydra.job.id = config.hydra.job.num = i
            points.append(partial(_run_point, Singleton.get_state(), self._context, config))

        def keep(i: int, ended: JobReturn) -> None:
            returns[i] = ended
            words = " ".join(filter_overrides(job_overrides[i]))
            log.info("\t#%d : %s : ended, %d of %d", initial_job_idx + i, words, len(returns), len(points))

        with INTERRUPTS.answered() as ending:
            on_ray([partial(point, self._task) for point in points], keep, self._num_cpus)
        if ending.interrupted:
            line = f"{hydra.job.name}: interrupted; {how_to_resume(Path(hydra.sweep.dir))}"
            print(line, file=sys.stderr)  # noqa: T201
            sys.exit(128 + signal.SIGINT)
        for i in sorted({*range(len(points))} - returns.keys()):
            keep(i, points[i](partial(_record_loss, hydra.job.name)))
        return [returns[i] for i in range(len(points))]


def _run_point(
    state: dict[Any, Any], context: HydraContext, config: DictConfig, task: TaskFunction
) -> JobReturn:
    """Run a point, in a process of Ray, where Hydra has not been started, or in this one."""
    setup_globals()
    Singleton.set_state(state)
    places = "hydra.sweep.dir", "hydra.sweep.subdir"
    ended: JobReturn = run_job(task, config, *places, hydra_context=context)
    return ended


def _record_loss(name: str, config: DictConfig) -> float | None:
    """Record a point that no worker lived to end; return its objective, as a task does."""
    message = "its worker or node died each time that Ray tried it; it may need more memory"
    replace(RunRecord.of_this_run(name, config), status=FAILED, message=message).save()
    return math.inf if command_of(name).objective else None


def register_launcher() -> None:
    """Give Hydra the launcher, where Ray is installed."""
    if importlib.util.find_spec("ray") is not None:
        Plugins.instance().class_name_to_class[_NAME] = RayLauncher
        ConfigStore.instance().store("ray", {"_target_": _NAME, "num_cpus": 1}, "hydra/launcher")
