"""The file form of a certificate, which is the field ``certificate`` of a ``schedule.json``.

The placement and the repetend are elsewhere in that file. All numbers are whole; a fraction is a pair.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from placements import Placement
from schedsearch.bounds.memory_occupancy import MemoryOccupancy
from schedsearch.certificate.certificate import (
    Certificate,
    CertificateError,
    Limits,
    Load,
    MinCycleRatio,
    Reason,
    Refutation,
)
from schedsearch.repetend import Repetend


def certificate_to_dict(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as plain data, without its placement and repetend."""
    limits = {name: value for name, value in vars(certificate.limits).items() if value is not None}
    bound = certificate.period_bound
    return {
        "micro_batches_per_repetend": list(certificate.sizes),
        "period_bound": [bound.numerator, bound.denominator],
        "limits": limits,
        "reasons": [_reason_to_dict(reason) for reason in certificate.reasons],
    }


def _reason_to_dict(reason: Reason) -> dict[str, Any]:
    if isinstance(reason, Load):
        return {"reason": "load", "device": reason.device}
    if isinstance(reason, MemoryOccupancy):
        flow = [[a, b, amount] for (a, b), amount in reason.flow.items()]
        weights, shared = list(reason.device_weight), list(reason.shared)
        return {"reason": "residence", "device_weight": weights, "flow": flow, "shared": shared}
    if isinstance(reason, MinCycleRatio):
        period = [reason.period.numerator, reason.period.denominator]
        devices, names = list(reason.devices), list(reason.cut_out)
        return {"reason": "cycles", "period": period, "devices": devices, "cut_out": names}
    return {"reason": "refutation", **vars(reason)}


def certificate_from_dict(data: object, placement: Placement, repetend: Repetend) -> Certificate:
    """Build a certificate from its file form; what it claims may still be false.

    Raises:
        CertificateError: A field is missing, unknown or of the wrong type; the message names it.
    """
    names = ("micro_batches_per_repetend", "period_bound", "limits", "reasons")
    top = _fields(data, "certificate", names)
    sizes = top["micro_batches_per_repetend"]
    reasons = _list(top["reasons"], "certificate.reasons")
    limits = top["limits"]
    if not isinstance(limits, dict):
        raise _wrong("certificate.limits", limits, "a mapping")
    for name, value in limits.items():
        if name not in vars(Limits()):
            raise CertificateError(
                f"certificate.limits: has an unknown field {name!r}; use {', '.join(vars(Limits()))}"
            )
        whole(value, f"certificate.limits.{name}")
    return Certificate(
        placement,
        whole_numbers(sizes, "certificate.micro_batches_per_repetend"),
        repetend,
        _fraction(top["period_bound"], "certificate.period_bound"),
        tuple(_read_reason(each, f"certificate.reasons[{i}]") for i, each in enumerate(reasons)),
        Limits(**limits),
    )


def _read_reason(data: object, where: str) -> Reason:
    kind = data.get("reason") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in _READERS:
        raise _wrong(f"{where}.reason", kind, " or ".join(_READERS))
    return _READERS[kind](data, where)


def _read_load(data: object, where: str) -> Load:
    return Load(whole(_fields(data, where, ("reason", "device"))["device"], f"{where}.device"))


def _read_memory_occupancy(data: object, where: str) -> MemoryOccupancy:
    entry = _fields(data, where, ("reason", "device_weight", "flow", "shared"))
    flow: dict[tuple[str, str], int] = {}
    for i, row in enumerate(_list(entry["flow"], f"{where}.flow")):
        if not isinstance(row, list) or [type(item) for item in row] != [str, str, int]:
            raise _wrong(f"{where}.flow[{i}]", row, "[from, to, amount] with a whole amount")
        if (row[0], row[1]) in flow:
            raise CertificateError(f"{where}.flow[{i}]: {row[0]} to {row[1]} is given twice; give it once")
        flow[row[0], row[1]] = row[2]
    weights = whole_numbers(entry["device_weight"], f"{where}.device_weight")
    return MemoryOccupancy(weights, flow, whole_numbers(entry["shared"], f"{where}.shared"))


def _read_cycles(data: object, where: str) -> MinCycleRatio:
    entry = _fields(data, where, ("reason", "period", "devices", "cut_out"))
    names = _list(entry["cut_out"], f"{where}.cut_out")
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise _wrong(f"{where}.cut_out", names, "names of blocks, each once")
    devices = whole_numbers(entry["devices"], f"{where}.devices")
    return MinCycleRatio(_fraction(entry["period"], f"{where}.period"), devices, tuple(names))


def _read_refutation(data: object, where: str) -> Refutation:
    entry = _fields(data, where, ("reason", "micro_batches", "period", "solver"))
    if not isinstance(entry["solver"], str):
        raise _wrong(f"{where}.solver", entry["solver"], "a name")
    return Refutation(
        whole(entry["micro_batches"], f"{where}.micro_batches"),
        whole(entry["period"], f"{where}.period"),
        entry["solver"],
    )


_READERS: dict[str, Callable[[object, str], Reason]] = {
    "load": _read_load,
    "residence": _read_memory_occupancy,
    "cycles": _read_cycles,
    "refutation": _read_refutation,
}


def whole(value: object, where: str) -> int:
    """Return a whole number.

    Raises:
        CertificateError: It is none; `where` is its place in the file.
    """
    if type(value) is not int:
        raise _wrong(where, value, "a whole number")
    return value


def whole_numbers(value: object, where: str) -> tuple[int, ...]:
    """Return a list of whole numbers.

    Raises:
        CertificateError: It is none; `where` is its place in the file.
    """
    return tuple(whole(each, f"{where}[{i}]") for i, each in enumerate(_list(value, where)))


def _fraction(value: object, where: str) -> Fraction:
    pair = whole_numbers(value, where)
    if len(pair) != 2 or pair[1] < 1:
        raise _wrong(where, value, "[numerator, denominator] with a denominator of 1 or more")
    return Fraction(*pair)


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(where, value, "a list")
    return value


def _fields(data: object, where: str, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise _wrong(where, data, f"a mapping of {', '.join(names)}")
    for name in names:
        if name not in data:
            raise CertificateError(f"{where}: lacks the field {name!r}; add it")
    for name in data:
        if name not in names:
            raise CertificateError(f"{where}: has an unknown field {name!r}; use {', '.join(names)}")
    return data


def _wrong(where: str, value: object, wanted: str) -> CertificateError:
    shown = repr(value)
    return CertificateError(f"{where}: {shown[:60] + '...' * (len(shown) > 60)} is wrong; give {wanted}")
