"""Configs that Hydra cannot compose: as one line with a remedy, and in a sweep as a row like any other."""

from __future__ import annotations

import difflib
import itertools
import json
import re
import sys
from collections.abc import Sequence
from urllib.parse import quote

from hydra.core.plugins import Plugins
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from experiments.config.commands import commands, items_of
from experiments.config.option_list import FILE, kinds_of, names_of
from experiments.config.options import OptionError, did_you_mean

_PLUGINS = Plugins.instance()  # runs the module of each plugin again, which is imported after that
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # noqa: E402
from hydra._internal.hydra import Hydra  # noqa: E402

_GET_MODE = Hydra.get_mode

_LAUNCHERS = {"joblib": "joblib", "ray": "ray", "submitit_local": "slurm", "submitit_slurm": "slurm"}
"""What must be installed for a launcher of Hydra's."""


_FLAGS = (
    *("--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m"),
    *("--info", "-i"),
)
"""Flags of Hydra's."""

_FLAGS_WITH_VALUE = (
    *("--cfg", "-c", "--package", "-p", "--shell-completion", "-sc", "--config-path", "-cp"),
    *("--config-name", "-cn", "--config-dir", "-cd", "--experimental-rerun"),
)
"""Those with a word after them."""

_FLAGS_OF_CONFIG = ("-cp", "-cn", "-cd", "--experimental-rerun")
"""Those of them that bring a config of the user's, besides the long names that begin with ``--config``."""


def flags_last(command: str, given: Sequence[str]) -> list[str]:
    """Return a command line with its flags after all options, as Hydra wants it.

    Raises:
        OptionError: A flag is not known, or an option is not written NAME=VALUE.
    """
    check_assignments(command, given)
    options, flags, words = list[str](), list[str](), list(given)
    while words:
        word = words.pop(0)
        flag, is_whole, _ = word.partition("=")
        if not word.startswith("-"):
            options.append(word)
            continue
        if flag not in (*_FLAGS, *_FLAGS_WITH_VALUE):
            raise OptionError(f"{word}: is not a flag of {command}; {_meant(command, flag)}")
        flags.append(word)
        if words and flag in _FLAGS_WITH_VALUE and not is_whole:
            flags.append(words.pop(0))
    return [*options, *flags]


def _meant(command: str, flag: str) -> str:
    known = (*_FLAGS, *_FLAGS_WITH_VALUE)
    near = difflib.get_close_matches(f"--{flag.strip('-')}", _dashed(command), n=1)
    if near and not difflib.get_close_matches(flag, known, n=1, cutoff=0.8):
        return f"did you mean {near[0][2:]}=VALUE?"
    return did_you_mean(flag, known)


def _dashed(command: str) -> list[str]:
    return [f"--{name}" for name in names_of(command)]


def check_assignments(command: str, given: Sequence[str]) -> None:
    """Reject an option that is not written NAME=VALUE, such as ``--placement v_shape``, and write it so.

    Raises:
        OptionError: One is.
    """
    for number, word in enumerate(given):
        written = re.fullmatch(r"-*([\w.]+)[ =:]*(.*)", word)
        if written is None or given[number - 1 : number] in (["--config-dir"], ["-cd"]):
            continue
        name, value = written.groups()
        later = next((each for each in given[number + 1 :] if each != "="), "")
        if not value and not re.match(r"-|[\w.]+[=:]", later):
            value = later.lstrip("=:")
        right = word == f"{name}={value}" or (word == f"{name}=" and not value)
        if not right and name in names_of(command):
            raise OptionError(f"{word}: is not NAME=VALUE; write {name}={value or 'VALUE'}")


def sweep_past_points_that_are_wrong() -> None:
    """Let Hydra sweep with `PatientSweeper`, unless another sweeper is chosen."""
    basic = f"{BasicSweeper.__module__}.{BasicSweeper.__name__}"
    _PLUGINS.class_name_to_class[basic] = PatientSweeper


def compose_once(given: Sequence[str]) -> None:
    """Spare Hydra a composition that only finds out whether the config sets ``hydra.mode``.

    No config of ours does. A word of the command line, or a config in a folder of the user's, may.
    """
    may_set_mode = any(
        ("hydra" in word and "mode" in word) or word.startswith(("--config", *_FLAGS_OF_CONFIG))
        for word in given
    )
    Hydra.get_mode = _GET_MODE if may_set_mode else lambda *_, **__: None  # type: ignore[method-assign]


def name_files(command: str, given: Sequence[str]) -> list[str]:
    """Return options in which ``GROUP=PATH`` says that the group reads a file, and which.

    That is so for groups with the choice ``file``, and for values that look like paths: with a dot or a
    slash, which no choice has. What else was given stays as it is.
    """
    return [each for option in given for each in _named_file(command, option)]


def _named_file(command: str, option: str) -> list[str]:
    group, _, value = option.partition("=")
    paths = value.split(",")
    if FILE in kinds_of(command, group) and all(re.search(r"[./\\]", path) for path in paths):
        return [f"{group}={FILE}", f"{group}.path={value}"]
    return [option]


class PatientSweeper(BasicSweeper):
    """Hydra's own sweeper, but where that refuses the whole sweep for one point, here it goes on.

    A point that names a config or an option that is not there, in whichever process, only writes its record;
    see `run_record.RunRecord.of_this_run`.
    """

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Put in the place of each wrong point one that can be composed and says what was wrong.

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
        key = misspelt.group(1)
        names, where = names_of(command), f"is not an option of schedsearch {command}"
        if own := [name for name in sorted(names) if name.endswith(f".{key}")]:
            return f"{key}: {where}; did you mean {own[0]}?"
        others = [o for o in commands() if any(f"{name}.".startswith(f"{key}.") for name in names_of(o))]
        if key in names and (items := items_of(command)):
            having = (item for item, options in items.items() if any(key == each.name for each in options))
            return f"{key}: is an option of {', '.join(sorted(having))}; choose that by experiment=NAME"
        if key in names:
            group = key.partition(".")[0]
            return f"{key}: is not an option of the {group} that is chosen; choose another or leave it out"
        if others:
            return f"{key}: {where}, but of {', '.join(others)}; leave it out"
        near = difflib.get_close_matches(key, names, n=1)
        help_flag = "--hydra-help" if key.startswith("hydra") else "--help"
        return f"{key}: {where}; {f'did you mean {near[0]}?' if near else f'{help_flag} says more'}"
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
        choices = itertools.takewhile(lambda line: not line.startswith("Config search path"), lines[2:])
        folder, _, kind = group.group(1).rpartition("/")
        remedy = f"pip install 'schedsearch[{_LAUNCHERS[kind]}]'" if kind in _LAUNCHERS else ""
        if folder == "experiment":
            return f"experiment={kind}: is not there; the options are {', '.join(kinds_of(command, folder))}"
        return f"{folder}={kind}: is not there; {remedy or did_you_mean(kind, choices)}"
    return " ".join(lines)
