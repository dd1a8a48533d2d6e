"""Configs that Hydra cannot compose: as one line with a remedy, and in a sweep as a row like any other."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Sequence
from urllib.parse import quote

from hydra.core.plugins import Plugins
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from experiments.config.option_list import kinds_of
from experiments.config.options import did_you_mean
from experiments.config.words import unknown

_PLUGINS = Plugins.instance()  # runs the module of each plugin again, which is imported after that
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # noqa: E402

_LAUNCHERS = {"joblib": "joblib", "ray": "ray", "submitit_local": "slurm", "submitit_slurm": "slurm"}
"""What must be installed for a launcher of Hydra's."""


def sweep_past_points_that_are_wrong() -> None:
    """Let Hydra sweep with `PatientSweeper`, unless another sweeper is chosen."""
    basic = f"{BasicSweeper.__module__}.{BasicSweeper.__name__}"
    _PLUGINS.class_name_to_class[basic] = PatientSweeper


class PatientSweeper(BasicSweeper):
    """Hydra's own sweeper, but where that refuses the whole sweep for one point, here it goes on.

    A point that names a config or an option that is not there, in whichever process, only writes its record;
    see `run_record.RunRecord.of_this_run`.
    """

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Put in the place of each wrong point one that can be composed and names the mistake.

        Raises:
            HydraException: No point is right.
            OmegaConfBaseException: Likewise.
        """
        assert self.config is not None
        assert isinstance(batch, list)
        wrong: dict[int, Exception] = {}
        for number, overrides in enumerate(batch):
            try:
                super().validate_batch_is_legal([overrides])
            except (HydraException, OmegaConfBaseException) as error:
                wrong[number] = error
        if len(wrong) == len(batch):
            raise wrong[0]
        for number, why in wrong.items():
            refused = json.dumps([batch[number], config_error(why, self.config.hydra.job.name)])
            batch[number] = [f"hydra.callbacks.sweep.refused='{quote(refused)}'"]


def config_error(error: Exception, command: str) -> str:
    """Return Hydra's message about the config of a command as one line with a remedy."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    misspelt = re.match(r"(?:In '[^']*': )?Could not override '([^']+)'", lines[0])
    if misspelt:
        return unknown(command, misspelt.group(1), sys.argv[1:])
    if isinstance(error, OverrideParseException):
        return f"{error.override}: is not NAME=VALUE, or its quotes or brackets are not closed; mend that"
    if lines[0].startswith("Config group override must be"):
        nulls = [given for given in sys.argv[1:] if re.fullmatch(r"\w+=(.*,)?(null)?(,.*)?", given)]
        return (
            f"{' '.join(nulls)}: is a group of options and cannot be null; choose a config, or leave it out"
        )
    if several := re.match(r"Ambiguous value for argument '(.*)'", lines[0]):
        return f"{several[1]}: has several values; write -m too to sweep over them, or [ ] around a list"
    if "does not support sweep type" in lines[0]:
        return "hydra/sweeper: basic takes values one by one; give them as in 3,4,5 or range(3,6)"
    group = re.match(r"(?:In '[^']*': )?Could not find '([^']+)'", lines[0])
    if group:
        folder, _, kind = group.group(1).rpartition("/")
        remedy = f"pip install 'schedsearch[{_LAUNCHERS[kind]}]'" if kind in _LAUNCHERS else ""
        if folder == "experiment":
            choices = sorted(kinds_of(command, folder))
            return f"experiment={kind}: is not there; the options are {', '.join(choices)}"
        choices = [*itertools.takewhile(lambda line: not line.startswith("Config search path"), lines[2:])]
        return f"{folder}={kind}: is not there; {remedy or did_you_mean(kind, choices)}"
    return " ".join(lines)
