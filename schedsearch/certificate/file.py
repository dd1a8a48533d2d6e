"""The file form of a certificate, which is the field ``certificate`` of a ``schedule.json``.

The placement and the repetend are elsewhere in that file. All numbers are whole; a fraction is a pair.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from placements import Placement
from placements.plain_data import Field
from schedsearch.bounds.conflicts import Conflicts
from schedsearch.bounds.memory_occupancy import HeldLimit, MemoryOccupancy
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
    if isinstance(reason, Conflicts):
        weight = [[list(devices), amount] for devices, amount in reason.weight.items()]
        return {"reason": "conflicts", "weight": weight, "at_once": reason.at_once}
    if isinstance(reason, MemoryOccupancy):
        flow = [[a, b, amount] for (a, b), amount in reason.flow.items()]
        weights, shared = list(reason.device_weight), list(reason.shared)
        held = [
            {**vars(each), "weight": dict(each.weight), "spare": dict(each.spare)} for each in reason.held
        ]
        fields = {"device_weight": weights, "flow": flow, "shared": shared}
        return {"reason": "residence", **fields, **({"held": held} if held else {})}
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
    top = Field(data, "certificate", CertificateError).only(names)
    limits = top["limits"].only((), tuple(vars(Limits())))
    return Certificate(
        placement,
        whole_numbers(top["micro_batches_per_repetend"]),
        repetend,
        fraction(top["period_bound"]),
        tuple(_read_reason(reason) for reason in top["reasons"].items()),
        Limits(**{name: limits[name].whole() for name in limits.value}),
    )


def whole_numbers(field: Field) -> tuple[int, ...]:
    """Return a list of whole numbers."""
    return tuple(each.whole() for each in field.items())


def _read_reason(field: Field) -> Reason:
    return _READERS[field["reason"].choice(tuple(_READERS))](field)


def _read_load(field: Field) -> Load:
    return Load(field.only(("reason", "device"))["device"].whole())


def _read_conflicts(field: Field) -> Conflicts:
    field.only(("reason", "weight", "at_once"))
    weight: dict[tuple[int, ...], int] = {}
    for row in field["weight"].items():
        if len(row.items()) != 2:
            raise row.wrong("[devices, weight]", "give a list of devices and a whole weight")
        devices, amount = row.items()
        weight[whole_numbers(devices)] = amount.whole()
    return Conflicts(weight, field["at_once"].whole())


def _read_memory_occupancy(field: Field) -> MemoryOccupancy:
    field.only(("reason", "device_weight", "flow", "shared"), ("held",))
    flow: dict[tuple[str, str], int] = {}
    for row in field["flow"].items():
        if [type(item.value) for item in row.items()] != [str, str, int]:
            raise row.wrong("[from, to, amount]", "give a whole amount")
        source, target, amount = row.value
        if (source, target) in flow:
            raise CertificateError(f"{row.where}: {source} to {target} is given twice; give it once")
        flow[source, target] = amount
    held = tuple(map(_read_held, field["held"].items())) if field.get("held").value else ()
    weights, shared = whole_numbers(field["device_weight"]), whole_numbers(field["shared"])
    return MemoryOccupancy(weights, flow, shared, held)


def _read_held(field: Field) -> HeldLimit:
    field.only(("device", "weight", "limit", "spare"))
    weight, spare = (
        {name: field[key][name].whole() for name in field[key].mapping("a mapping of blocks")}
        for key in ("weight", "spare")
    )
    return HeldLimit(field["device"].whole(), weight, field["limit"].whole(), spare)


def _read_cycles(field: Field) -> MinCycleRatio:
    field.only(("reason", "period", "devices", "cut_out"))
    names = tuple(name.text("a block") for name in field["cut_out"].items())
    if len(set(names)) < len(names):
        raise field["cut_out"].wrong("of different blocks", "give each once")
    return MinCycleRatio(fraction(field["period"]), whole_numbers(field["devices"]), names)


def _read_refutation(field: Field) -> Refutation:
    field.only(("reason", "micro_batches", "period", "solver"))
    return Refutation(field["micro_batches"].whole(), field["period"].whole(), field["solver"].text("a name"))


_READERS: dict[str, Callable[[Field], Reason]] = {
    "load": _read_load,
    "conflicts": _read_conflicts,
    "residence": _read_memory_occupancy,
    "cycles": _read_cycles,
    "refutation": _read_refutation,
}


def fraction(field: Field) -> Fraction:
    """Return a pair of whole numbers as the fraction that it stands for."""
    pair = whole_numbers(field)
    if len(pair) != 2 or pair[1] < 1:
        raise field.wrong("[numerator, denominator]", "give a denominator of 1 or more")
    return Fraction(*pair)
