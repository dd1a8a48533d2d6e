"""Estimated throughputs of pairs, from those that were measured.

The *fingerprint* of a type of job is a row: for each GPU type and reference job the share that the type keeps
of its throughput alone, and the share that it leaves to the reference job. Whether two jobs can share a GPU
(do they fit in its memory?) and how much of its throughput each keeps are two matrices: a pair that does not
fit is no slow one. Both are completed to low rank. Gavel takes over the pairs of the nearest reference job
(dissertation, Sec. 5.6); we take the completed entries where the other job is a reference, because they are
nearer to what is measured, and the nearest job's where both are new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np

from schedsearch.cluster.demand import FloatArray
from schedsearch.cluster.estimator.completion import Settings, chosen_settings, complete
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.throughputs import Throughputs

KEPT = 0
"""Place of the share that a type keeps in the last axis of `Fingerprints.shares`."""

FITS = 0.5
"""Two jobs are taken to fit on a GPU where the completed matrix of 0 (no) and 1 (yes) is at least this."""


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """Shares of the throughputs alone, of jobs with one number of GPUs.

    Attributes:
        types: Types of jobs, the rows.
        references: Types that were profiled in pairs, among the rows.
        gpu_types: On which any of them runs.
        shares: Shares of speed that a type keeps, and that it leaves, of shape
            ``(types, gpu_types, references, 2)``; 0 where two cannot share, nan where it is not known.
    """

    types: tuple[str, ...]
    references: tuple[str, ...]
    gpu_types: tuple[str, ...]
    shares: FloatArray


@dataclass(frozen=True, eq=False)
class PairEstimate:
    """Throughputs whose pairs are measured or estimated.

    Attributes:
        throughputs: Throughputs as policies take them; measured pairs are as they were measured.
        nearest: The reference job that each new type of job is most like, by type and scale factor.
        settings: How was completed, by scale factor, who fits and what share is kept.
    """

    throughputs: Throughputs
    nearest: Mapping[tuple[str, int], str]
    settings: Mapping[int, tuple[Settings, Settings]]


def fingerprints(throughputs: Throughputs, gpus: int, references: Sequence[str]) -> Fingerprints:
    """Return what throughputs say of the jobs with so many GPUs; references count that have as many."""
    types = tuple(job_type for job_type, count in throughputs.alone if count == gpus)
    columns = tuple(one for one in references if one in types)
    gpu_types = tuple(dict.fromkeys(gpu_type for one in types for gpu_type in throughputs.alone[one, gpus]))
    shares = np.full((len(types), len(gpu_types), len(columns), 2), np.nan)
    for row, one in enumerate(types):
        for column, other in enumerate(columns):
            measured = throughputs.pair(one, other, gpus)
            for number, gpu_type in enumerate(gpu_types):
                if gpu_type in measured:
                    rates = measured[gpu_type]
                    alone = [throughputs.rate(each, gpus, gpu_type) for each in (one, other)]
                    can_share = all(rates) and all(alone)
                    shares[row, number, column] = np.divide(rates, alone) if can_share else 0.0
    return Fingerprints(types, columns, gpu_types, shares)


def estimate_pairs(
    measured: Throughputs,
    references: Sequence[str],
    seed: int = 0,
    settings: Mapping[int, tuple[Settings, Settings]] | None = None,
) -> PairEstimate:
    """Return throughputs with all pairs, of which those that were not measured are estimated.

    Args:
        measured: All jobs alone; the reference jobs in pairs, and new ones beside some of them.
        references: Types of jobs that were profiled with each other.
        seed: Seed of what is held out to choose the settings.
        settings: Settings of an estimate before, when little was measured since: choosing takes most of the
            time.

    Raises:
        ClusterError: No throughputs alone are known of a reference job.
    """
    for reference in references:
        if all(job_type != reference for job_type, _ in measured.alone):
            raise ClusterError(
                f"the reference job {reference!r} has no throughputs; add them, or leave it out"
            )
    pairs = {key: dict(by_type) for key, by_type in measured.pairs.items()}
    nearest: dict[tuple[str, int], str] = {}
    chosen: dict[int, tuple[Settings, Settings]] = {}
    for gpus in sorted({gpus for _, gpus in measured.alone}):
        found = fingerprints(measured, gpus, references)
        if not np.isfinite(found.shares).any():
            continue
        flat = found.shares.reshape(len(found.types), -1)
        matrices = np.where(np.isnan(flat), np.nan, flat > 0), np.where(flat > 0, flat, np.nan)
        fits, kept = (settings or {}).get(gpus) or [chosen_settings(matrix, seed) for matrix in matrices]
        chosen[gpus] = fits, kept
        can_share = complete(matrices[0], fits.rank, fits.regularization) >= FITS
        all_shares = np.clip(complete(matrices[1], kept.rank, kept.regularization), 0.0, 1.0)
        shares = np.where(can_share, all_shares, 0.0).reshape(found.shares.shape)
        shares[(shares == 0).any(axis=-1)] = 0.0
        most_like = _nearest(found, shares)
        for row, job_type in enumerate(found.types):
            if job_type not in found.references:
                nearest[job_type, gpus] = found.references[most_like[row]]
        for one, other in combinations_with_replacement(range(len(found.types)), 2):
            first, second = found.types[one], found.types[other]
            known = measured.pair(first, second, gpus)
            both = _shares_of_two(found, shares, most_like, one, other)
            for number, gpu_type in enumerate(found.gpu_types):
                if gpu_type in known:
                    continue
                alone = [measured.rate(each, gpus, gpu_type) for each in (first, second)]
                rates = (float(both[number, 0] * alone[0]), float(both[number, 1] * alone[1]))
                _add(pairs, (first, second, gpus), gpu_type, rates if all(rates) else (0.0, 0.0))
    return PairEstimate(replace(measured, pairs=pairs), nearest, chosen)


def with_measurement(
    measured: Throughputs, pair: tuple[str, str, int], gpu_type: str, rates: tuple[float, float]
) -> Throughputs:
    """Return throughputs in which a pair is as it was measured while it ran; estimate the others anew then.

    Args:
        measured: Measured rates, without what was estimated.
        pair: Two types of jobs, and their scale factor.
        gpu_type: Where they ran.
        rates: Rates of both jobs, in the order of the pair, in steps per second.
    """
    pairs = {key: dict(by_type) for key, by_type in measured.pairs.items()}
    _add(pairs, pair, gpu_type, rates)
    return replace(measured, pairs=pairs)


def _add(
    pairs: dict[tuple[str, str, int], dict[str, tuple[float, float]]],
    pair: tuple[str, str, int],
    gpu_type: str,
    rates: tuple[float, float],
) -> None:
    """Add the rates of a pair, which may be there in the other order."""
    one, other, gpus = pair
    if pair not in pairs and (other, one, gpus) in pairs:
        pair, rates = (other, one, gpus), rates[::-1]
    pairs.setdefault(pair, {})[gpu_type] = rates


def _nearest(found: Fingerprints, shares: FloatArray) -> list[int]:
    """Return the reference job whose row has the least angle to each row, by its column; itself for one."""
    flat = shares.reshape(len(found.types), -1)
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    unit = flat / np.where(lengths > 0, lengths, 1.0)
    rows = [found.types.index(reference) for reference in found.references]
    cosines = unit @ unit[rows].T
    cosines[rows, range(len(rows))] = np.inf
    return [int(column) for column in cosines.argmax(axis=1)]


def _shares_of_two(
    found: Fingerprints, shares: FloatArray, most_like: Sequence[int], one: int, other: int
) -> FloatArray:
    """Return what both keep on each GPU type; of two new types each as beside the other's nearest."""
    if found.types[other] in found.references:
        return shares[one, :, found.references.index(found.types[other])]
    if found.types[one] in found.references:
        return shares[other, :, found.references.index(found.types[one]), ::-1]
    return np.column_stack([shares[one, :, most_like[other], KEPT], shares[other, :, most_like[one], KEPT]])
