"""The file form of a certificate, which is the field ``certificate`` of a ``schedule.json``.

The placement and the repetend are elsewhere in that file. All numbers are whole; a fraction is a pair.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from placements import Placement
from placements.plain_data import Field, plain
from schedsearch.certificate.certificate import (
    Certificate,
    CertificateError,
    Load,
    MinCycleRatio,
    Reason,
    Refutation,
    RepetendLimits,
)
from schedsearch.proof.conflicts import Conflicts
from schedsearch.proof.memory_occupancy import HeldLimit, MemoryOccupancy
from schedsearch.proof.mode_choice import ModeChoice
from schedsearch.repetend import Repetend


def certificate_to_dict(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as plain data, without its placement and repetend."""
    return {
        "micro_batches_per_repetend": list(certificate.sizes),
        "period_bound": plain(certificate.period_bound),
        "limits": plain(certificate.limits, defaults=False),
        "reasons": [_reason_to_dict(reason) for reason in certificate.reasons],
    }


def _reason_to_dict(reason: Reason) -> dict[str, Any]:
    if isinstance(reason, Load):
        return {"reason": "load", **plain(reason, defaults=False)}
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
    if isinstance(reason, ModeChoice):
        lanes = [[lane, plain(price)] for lane, price in reason.lanes.items()]
        return {"reason": "modes", "device": reason.device, "lanes": lanes, "memory": plain(reason.memory)}
    if isinstance(reason, MinCycleRatio):
        return {"reason": "cycles", **plain(reason)}
    return {"reason": "refutation", **vars(reason)}


def certificate_from_dict(data: object, placement: Placement, repetend: Repetend) -> Certificate:
    """Build a certificate from its file form; what it claims may still be false.

    Raises:
        CertificateError: A field is missing, unknown or of the wrong type; the message names it.
    """
    names = ("micro_batches_per_repetend", "period_bound", "limits", "reasons")
    top = Field(data, "certificate", CertificateError).only(names)
    return Certificate(
        placement,
        top["micro_batches_per_repetend"].whole_numbers(),
        repetend,
        top["period_bound"].fraction(),
        tuple(_read_reason(reason) for reason in top["reasons"].items()),
        top["limits"].record(RepetendLimits),
    )


def _read_reason(field: Field) -> Reason:
    return _READERS[field["reason"].choice(tuple(_READERS))](field)


def _read_conflicts(field: Field) -> Conflicts:
    field.only(("reason", "weight", "at_once"))
    weight: dict[tuple[int, ...], int] = {}
    for row in field["weight"].items():
        if len(row.items()) != 2:
            raise row.wrong("[devices, weight]", "give a list of devices and a whole weight")
        devices, amount = row.items()
        weight[devices.whole_numbers()] = amount.whole()
    return Conflicts(weight, field["at_once"].whole())


def _read_mode_choice(field: Field) -> ModeChoice:
    field.only(("reason", "device", "lanes", "memory"))
    lanes: dict[int, Fraction] = {}
    for row in field["lanes"].items():
        if len(row.items()) != 2:
            raise row.wrong("[lane, price]", "give the number of a stream and a fraction")
        lane, price = row.items()
        lanes[lane.whole()] = price.fraction()
    return ModeChoice(field["device"].whole(), lanes, field["memory"].fraction())


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
    weights, shared = field["device_weight"].whole_numbers(), field["shared"].whole_numbers()
    return MemoryOccupancy(weights, flow, shared, held)


def _read_held(field: Field) -> HeldLimit:
    field.only(("device", "weight", "limit", "spare"))
    weight, spare = (
        {name: field[key][name].whole() for name in field[key].mapping("a mapping of blocks")}
        for key in ("weight", "spare")
    )
    return HeldLimit(field["device"].whole(), weight, field["limit"].whole(), spare)


def _read_cycles(field: Field) -> MinCycleRatio:
    found = field.record(MinCycleRatio, _REASON)
    if len(set(found.cut_out)) < len(found.cut_out):
        raise field["cut_out"].wrong("of different blocks", "give each once")
    return found


_REASON = ("reason",)

_READERS: dict[str, Callable[[Field], Reason]] = {
    "load": lambda field: field.record(Load, _REASON),
    "conflicts": _read_conflicts,
    "residence": _read_memory_occupancy,
    "cycles": _read_cycles,
    "modes": _read_mode_choice,
    "refutation": lambda field: field.record(Refutation, _REASON),
}
