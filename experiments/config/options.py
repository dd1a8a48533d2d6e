"""The options of a config as typed records; a wrong one is rejected by name, with the remedy, in one line."""

from __future__ import annotations

import difflib
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from placements.forms.meaning import Meaning
from placements.forms.reading import in_mib


class OptionError(ValueError):
    """An option of the config is wrong; the message names it and the remedy in one line."""


Record = TypeVar("Record")


def read_record(config: DictConfig, record: type[Record], others: Sequence[str] = ()) -> Record:
    """Return a composed config as a record, but for names of another record.

    Raises:
        OptionError: An option is missing, unknown or of the wrong type.
    """
    data = plain(config)
    return read_fields({name: data[name] for name in data if name not in others}, record, "")


def plain(config: DictConfig) -> dict[Any, Any]:
    """Return a composed config as plain data.

    Raises:
        OptionError: An option has no value.
    """
    try:
        data = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise OptionError(f"{error.full_key}: has no value; give one, as in {error.full_key}=VALUE") from None
    except OmegaConfBaseException as error:
        where = getattr(error, "full_key", None) or "config"
        raise OptionError(f"{where}: {str(error).splitlines()[0]}; give a value") from None
    assert isinstance(data, dict), "a Hydra config is a mapping"
    return data


def read_fields(data: Any, record: type[Record], where: str) -> Record:
    """Build a dataclass from a mapping, checking the names and the types of its fields.

    Raises:
        OptionError: A field is missing, unknown or of the wrong type; `where` is its place in the config.
    """
    if not isinstance(data, dict):
        raise OptionError(f"{where}: {data!r} is not a group of options; give them as in {where}.NAME=VALUE")
    hints = typing.get_type_hints(record)
    names = [field.name for field in fields(record)]  # type: ignore[arg-type]
    for name in data:
        if name not in names:
            raise OptionError(f"{_join(where, name)}: is not an option; {did_you_mean(str(name), names)}")
    for name in names:
        if name not in data:
            raise OptionError(
                f"{_join(where, name)}: has no value; give one, as in {_join(where, name)}=VALUE"
            )
    values = {}
    for field in fields(record):  # type: ignore[arg-type]
        name, read = field.name, field.metadata.get("read")
        values[name] = read(data[name]) if read else _read_value(data[name], hints[name], _join(where, name))
        if meaning := field.metadata.get("meaning"):
            _check_limits(values[name], meaning, _join(where, name))
            value = values[name]
            for each in value if isinstance(value, list | tuple) else [value]:
                if meaning.choices and each is not None:
                    require_known(_join(where, name), each, meaning.choices)
    return record(**values)


def _check_limits(value: Any, meaning: Meaning, where: str) -> None:
    """Reject a number, also one of a list, that is not within what is declared."""
    for each in value if isinstance(value, list | tuple) else [value]:
        is_number = isinstance(each, int | float) and not isinstance(each, bool)
        if is_number and meaning.limits and not (math.isfinite(each) and meaning.allows(each)):
            raise OptionError(f"{where}: {each:.15g} is not {meaning.limits} {meaning.unit}".rstrip())


def require(holds: bool, where: str, value: object, wanted: str, remedy: str = "") -> None:
    """Reject an option that is not as wanted.

    Raises:
        OptionError: It does not hold.
    """
    if not holds:
        shown = f"{value:.15g}" if isinstance(value, float) else repr(value)
        raise OptionError(f"{where}: {shown} is not {wanted}" + (f"; {remedy}" if remedy else ""))


def require_least(where: str, value: float | None, least: float) -> None:
    """Reject an option that is below so much; None is no number."""
    require(value is None or value >= least, where, value, f"at least {least:g}")


def require_limits(options: Any) -> None:
    """Reject limits of work and of time that are not above 0; None is no limit.

    Their names end with ``work_limit`` or ``time_limit_s``.
    """
    units = {"work_limit": "units of work", "time_limit_s": "seconds"}
    for name in (field.name for field in fields(options)):
        for ending, unit in units.items():
            limit = getattr(options, name) if name.endswith(ending) else None
            is_positive = limit is None or (type(limit) in (int, float) and 0 < limit < math.inf)
            require(is_positive, name, limit, f"a positive number of {unit}")


def require_known(where: str, value: object, known: Iterable[str], wanted: str = "known") -> None:
    """Reject an option that is none of the names."""
    known = list(known)
    require(value in known, where, value, wanted, did_you_mean(str(value), known))


def require_once(where: str, names: list[Any]) -> None:
    """Reject a list in which a name is there twice."""
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"{where}: {name!r} is named twice; name each once")


def require_path(where: str, value: object) -> str:
    """Return an option that is a path; reject any other."""
    require(isinstance(value, str) and value != "", where, value, "a path", "give that of a file")
    return str(value)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a remedy for a name that is not known: the nearest that is, or all."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"the options are {', '.join(known)}"


def _read_value(value: Any, wanted: Any, where: str) -> Any:
    if (mib := in_mib(value)) is not value and (unit_mib := _unit_mib(where)):
        assert isinstance(mib, float)
        value = mib / unit_mib if float in get_args(wanted) or wanted is float else round(mib / unit_mib)
    kinds = get_args(wanted) if get_origin(wanted) in (types.UnionType, typing.Union) else (wanted,)
    plain = [get_origin(kind) or kind for kind in kinds]
    if isinstance(wanted, type) and hasattr(wanted, "__dataclass_fields__"):
        return read_fields(value, wanted, where)
    if value is None and types.NoneType in plain:
        return None
    if isinstance(value, bool) and bool not in plain:
        raise OptionError(f"{where}: {value!r} is not {_in_words(plain)}")
    if isinstance(value, int) and float in plain and int not in plain:
        return float(value)
    if tuple in plain and isinstance(value, list):
        item = get_args(kinds[plain.index(tuple)])[0]
        return tuple(_read_value(each, item, where) for each in value)
    if Path in plain and isinstance(value, str):
        return Path(value)
    for kind in plain:
        if kind is not types.NoneType and isinstance(value, kind):
            return value
    raise OptionError(f"{where}: {value!r} is not {_in_words(plain)}{_remedy(value, plain)}")


def _unit_mib(where: str) -> float | None:
    """Return in which unit an option is memory; None where it is none, or in units of a placement."""
    units = {"gib": 1024.0, "mib": 1.0, "memory": 2.0**-20 if where == "runtime.receive_memory" else None}
    return units.get(where.rpartition("_")[2])


def _remedy(value: Any, kinds: list[Any]) -> str:
    """Return the remedy for one value of a list, and a number with a percent sign or a unit; else nothing."""
    if {list, tuple, Sequence} & set(kinds):
        return f"; write [{value}]"
    written = re.fullmatch(r"([+-]?[\d.]+)\s*(%|[A-Za-z]+)", value) if isinstance(value, str) else None
    if written is None or not {int, float} & set(kinds):
        return ""
    number, unit = written.groups()
    if unit != "%":
        return f"; give the number alone, {number}, in the unit that the option's name ends with"
    share = float(number) / 100
    return f"; write {value} more as {1 + share:g}, a share of {value} as {share:g}"


def _in_words(kinds: list[Any]) -> str:
    words = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
        dict: "a mapping",
        tuple: "a list",
        Path: "a path",
        Mapping: "a mapping",
        Sequence: "a list",
        types.NoneType: "null",
    }
    return " or ".join(words.get(kind, f"a {kind.__name__}") for kind in kinds)


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else str(name)
