"""The options of a config as typed records; a wrong one is rejected by name, with the remedy, in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from placements.forms.reading import Field, Named

_PERCENT = re.compile(r"([+-]?[\d.]+)\s*%")


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
    """Return a mapping as a record, whose fields are declared by `placements.forms.meaning.option`.

    Raises:
        OptionError: A field is missing, unknown, or not as declared; `where` is its place in the config.
    """
    return OptionField(data, where, OptionError).record(record)


@dataclass(frozen=True)
class OptionField(Field):
    """An option or a group of options, and its name."""

    def wrong(self, wanted: str, remedy: str = "give one") -> ValueError:
        """Return the error of a wrong value; a percent sign has a remedy."""
        if isinstance(self.value, str) and "number" in wanted and (given := _PERCENT.fullmatch(self.value)):
            share = float(given[1]) / 100
            remedy = f"write {self.value} more as {1 + share:g}, a share of {self.value} as {share:g}"
        return super().wrong(wanted, remedy)

    def mistake(self, text: str) -> ValueError:
        """Return the error of a mistake here; a record's own checks say which option it is."""
        return self.error(text) if re.match(r"[\w.]+: ", text) else super().mistake(text)

    def items(self, wanted: str = "a list", remedy: str = "give one") -> list[Field]:
        """Return the entries of a list; a single value is a list of one."""
        return super().items(wanted) if isinstance(self.value, list | tuple | dict | None) else [self]

    def choice(self, known: Sequence[Any]) -> Any:
        """Return a value that is one of those known."""
        require_known(self.where, self.value, known)
        return self.value

    def only(self, required: Sequence[str], optional: Sequence[str] = ()) -> Field:
        """Return itself, a group of all of its options, as Hydra composes it and a record keeps it."""
        known = [*required, *optional]
        group = self.mapping("a group of options", f"give them as in {self.where}.NAME=VALUE")
        for name in group:
            if name not in known:
                raise self.inside(name, None).mistake(f"is not an option; {did_you_mean(str(name), known)}")
        for name in known:
            if name not in group:
                option = self.inside(name, None)
                raise option.mistake(f"has no value; give one, as in {option.where}=VALUE")
        return self

    def record(
        self, kind: type[Record], others: Sequence[str] = (), named: Named | None = None, **given: Any
    ) -> Record:
        """Return a dataclass of options; a group that says how it is read is read so."""
        reads = {field.name: read for field in fields(kind) if (read := field.metadata.get("read"))}  # type: ignore[arg-type]
        values = {name: read(self[name].value) for name, read in reads.items()}
        return super().record(kind, (*others, *reads), named, **values, **given)


def require(holds: bool, where: str, value: object, wanted: str, remedy: str = "") -> None:
    """Reject an option that is not as wanted.

    Raises:
        OptionError: It does not hold.
    """
    if not holds:
        shown = f"{value:.15g}" if isinstance(value, float) else repr(value)
        raise OptionError(f"{where}: {shown} is not {wanted}" + (f"; {remedy}" if remedy else ""))


def require_known(where: str, value: object, known: Iterable[str], wanted: str = "known") -> None:
    """Reject an option that is none of the names."""
    known = list(known)
    require(value in known, where, value, wanted, did_you_mean(str(value), known))


def require_once(where: str, names: Sequence[Any]) -> None:
    """Reject a list in which a name is there twice."""
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"{where}: {name!r} is named twice; name each once")


def require_path(where: str, value: object) -> str:
    """Return an option that is a path; reject any other."""
    require(isinstance(value, str) and value != "", where, value, "a path", "give the path of a file")
    return str(value)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a remedy for a name that is not known: the nearest that is, or all."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"the options are {', '.join(known)}"
