# ruff: noqa: N803, N806
"""Galvatron's search of 2022 once more, slow and plain, with the symbols of its description.

Every assignment of strategies to layers is tried.
It shares no code with `experiments.reproduce.galvatron.search_2022`, and reads the data of an entry as
they are.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

Answer = tuple[int, float] | None
Data = Any


def list_of(data: Data) -> list[Data]:
    return data if isinstance(data, list) else [data]


def chunks(family: str, n: int, P: int, t: int, d: int, b: float) -> float:
    if n == 16:
        if family in ("bert", "t5"):
            return max(1, math.ceil((b // t) / 4))
        return max(1, math.ceil((b // t) / (32 if P == 16 else 16)))
    if family == "bert":
        if P == 1:
            return 1
        if (P, t, d) == (2, 4, 1) or (P, t, d) == (4, 2, 1):
            return b / 4
        return b / 2 if b < 6 else b / 8 + 2
    if family == "vit":
        return 1 if b == 8 else 2
    if family == "t5":
        return 1 if b == 2 else (3 if P == 8 else 2)
    if b <= 8:
        return 1
    return 2 if b < 32 else (3 if b <= 96 else 4)


def keys(t: int, d: int, info: Data) -> tuple[str, str]:
    if t == 1 or d == 1:
        return f"{d}", f"{t}"
    return (f"{d}_0", f"{t}_1") if info["tp"] == 1 else (f"{d}_1", f"{t}_0")


def cost(family: str, n: int, time: Data, s: Data, B: int, layers: int) -> float:
    P, t, d, info = s
    b, fsdp, dec = B / d, info.get("fsdp", 0), time.get("layer_type", "enc") == "dec"
    dc, tc = (time["comm_coe_dict"][str(P)][key] for key in keys(t, d, info))
    f = time["forward_computation_time"] * b / t
    g = time["bct_fct_coe"] * f
    a = 2 * (d - 1) / d * time["parameter_size"] / t * dc
    message = b * time["sequence_length"] * time["hidden_size"] * 4 / 2**20
    T = 2 * (t - 1) / t * message * (6 if dec else 4) * tc
    count = layers if "layer_num" in time else 24
    eo = time["extra_overhead"] / count
    if t == 1:
        phi = 1.0
    elif [P, t, d] == ([2, 2, 2] if n == 8 else [4, 2, 2]):
        phi = 0.5
    elif dec:
        phi = 2 / 3
    else:
        phi = 1.0 if d >= 4 else 0.5
    x, y = (a / 2 if fsdp and n == 16 else a), phi * g
    if d == 1:
        F = f + g + T
    elif n == 8 and t == 1 and P > 1 and not fsdp and a > g:
        F = f + 1.3 * g + (a - g) / P + eo
    else:
        F = f + (1 - phi) * g + max(x, y) + 0.3 * min(x, y) + T + eo
    c = F
    if P > 1:
        m = chunks(family, n, P, t, d, b)
        c = (f + g + T) * (P + m - 1) / (P * m) + F - (f + g + T)
    if fsdp:
        c += a / 2 if n == 8 else a
    if n == 16 and P > 1:
        c += 2 * message * time["p2p_comm_coe_dict"][str(P)] / count
    return 0.0011 * c


def memory(n: int, mem: Data, s: Data, B: int) -> float:
    _, t, d, info = s
    z = 1.0
    if info.get("fsdp", 0):
        z = 1 / d + (0.025 if n == 8 else 0.003)
    return 4 * mem["parameter_size"] / t * z + mem["tp_activation_per_bsz_dict"][str(t)] * B / d


def other(family: str, n: int, mem: Data, s: Data, B: int, multi: bool) -> list[float]:
    P, t, d, _ = s
    beta = B / t / d
    if n == 8:
        whole = mem["other_model_states"] + mem["other_activation_per_bsz"] * beta + 1024
        return [whole] + [0.0 if multi else whole] * (P - 1)
    if P == 1:
        return [
            mem["other_memory_pp_off"]["model_states"]
            + mem["other_memory_pp_off"]["activation"] * beta
            + 1024
        ]
    m = min(chunks(family, n, P, t, d, B // d), B // (t * d))
    R = mem["peak_reduction_with_chunks"] * beta * (1 - 1 / m)
    kind, stages = mem.get("model_type", "bert"), [1024.0] * P
    first, last = mem["other_memory_pp_on"]["first_stage"], mem["other_memory_pp_on"]["last_stage"]
    if kind in ("bert", "t5"):
        stages[0] += first["model_states"] + first["activation"] * beta / P
    else:
        stages[0] += first["model_states"] + first["activation"] * beta - R
    if kind == "swin":
        stages[-1] += last["model_states"] + last["activation"] * beta / P
    else:
        stages[-1] += last["model_states"] + last["activation"] * beta - R
    return stages


def change(n: int, groups: Data, i: Data, j: Data, B: int) -> float:
    if i[:3] == j[:3] and i[3].get("tp") == j[3].get("tp"):
        return 1e-4 if i[3].get("fsdp") and not j[3].get("fsdp") else 0.0
    ti, tj = i[1], j[1]
    hit = tj > ti
    if "tp" in i[3] and "tp" in j[3] and i[3]["tp"] != j[3]["tp"]:
        hit = hit or ti == tj
        hit = hit or (n == 8 and (i[0], ti, tj) == (1, 4, 2)) or (n == 16 and ti > tj > 1 and ti < n // i[0])
    if not hit:
        return 0.0
    return (tj - 1) / tj * 2 * B / j[2] * groups[str(j[0])][keys(j[1], j[2], j[3])[1]] / 1000


def stages_of(entry: Data, n: int, kinds: list[int], row: list[Data], P: int, B: int) -> list[list[int]]:
    mems = list_of(entry["mem"])
    if len(mems) == 1:
        return [[0] * (len(kinds) // P)] * P
    least = [min(memory(n, mems[kind], s, B) for s in row if s[0] == P) for kind in kinds]
    start = other("", n, mems[0], [1, 1, 8, {}], B, True)[0]
    average, rest, parts = (sum(least) + start) / P, list(range(len(kinds))), [[] for _ in range(P)]
    for part in reversed(parts[1:]):
        filled = 0.0
        while rest and average - filled >= least[rest[-1]] / 2:
            filled += least[rest[-1]]
            part.insert(0, rest.pop())
    if P > 1 and not rest and parts[1]:
        rest.append(parts[1].pop(0))
    parts[0] = rest
    return [[kinds[layer] for layer in part] for part in parts]


def stage_best(
    entry: Data, family: str, n: int, kinds: list[int], row: list[Data], B: int, room: int, total: int
) -> float:
    mems, times = list_of(entry["mem"]), list_of(entry["time"])
    groups = times[0]["comm_coe_dict"]
    costs = {(k, s): cost(family, n, times[k], row[s], B, total) for k in set(kinds) for s in range(len(row))}
    needs = {key: math.ceil(memory(n, mems[key[0]], row[key[1]], B)) for key in costs}
    between = [[change(n, groups, i, j, B) for j in row] for i in row]
    best = math.inf
    for chosen in itertools.product(range(len(row)), repeat=len(kinds)):
        if sum(needs[key] for key in zip(kinds, chosen, strict=True)) <= room:
            time = sum(costs[key] for key in zip(kinds, chosen, strict=True))
            best = min(best, time + sum(between[i][j] for i, j in itertools.pairwise(chosen)))
    return best


def batch_time(
    entry: Data,
    family: str,
    n: int,
    counts: tuple[int, ...],
    row: list[Data],
    all_row: list[Data],
    B: int,
    E: int,
) -> float:
    kinds = [kind for kind, count in enumerate(counts) for _ in range(count)]
    multi, best = len(counts) > 1, math.inf
    for P in sorted({s[0] for s in row}):
        if B % (n // P):
            continue
        mine = [s for s in row if s[0] == P]
        extra = other(family, n, list_of(entry["mem"])[0], mine[0], B, multi)
        parts = stages_of(entry, n, kinds, all_row, P, B)
        if not all(parts):
            continue
        if multi:
            rooms = [E - math.ceil(each) for each in extra]
            found = [
                stage_best(entry, family, n, part, mine, B, room, len(kinds)) if room > 0 else math.inf
                for part, room in zip(parts, rooms, strict=True)
            ]
            best = min(best, sum(found))
        else:
            room = E - math.ceil(max(extra))
            if room > 0:
                best = min(best, P * stage_best(entry, family, n, parts[0], mine, B, room, len(kinds)))
    return best


def oracle(name: str, entry: Data, counts: tuple[int, ...], memory_gb: float, method: str) -> Answer:
    family, _, gpus = name.split("_")
    n, E, row = int(gpus.removesuffix("gpus")), int(memory_gb * 1024), entry["strategies"]
    if method == "dp+tp":
        row = [s for s in row if s[0] == 1 and not s[3].get("fsdp")]
    if method == "dp+pp":
        row = [s for s in row if s[1] == 1 and not s[3].get("fsdp")]
    step = 8
    if n == 16:
        step = 32 if family in ("vit", "swin") and sum(counts) < 48 else 8
        step = max(step, 16) if method == "dp+tp" else step
    end = 1024 if len(counts) == 1 else {"t5": 64, "swin": 256}[family]
    bounds = []
    for s in row:
        if s[:3] in ([1, n, 1], [n, 1, 1], [1, 1, n]):
            own = max(step, 16) if n == 16 and s[0] == 1 else step
            fails = (
                B
                for B in range(own, end, own)
                if batch_time(entry, family, n, counts, [s], row, B, E) == math.inf
            )
            bounds.append(next(fails, own) - own)
    p = 0.0 if method == "dp+pp" else (0.4 if n == 8 else 0.65)
    start = max(step, int(((1 - p) * min(bounds) + p * max(bounds)) // step * step))
    best: Answer = None
    for B in range(start, end, step):
        seconds = batch_time(entry, family, n, counts, row, row, B, E)
        if seconds == math.inf:
            break
        if best is None or B / seconds > best[1]:
            best = (B, B / seconds)
    return best
