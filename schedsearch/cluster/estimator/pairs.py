"""Estimated throughputs of pairs, from those that were measured.

Whether two jobs can share a GPU (do they fit in its memory?) and how much of its throughput each keeps are
two matrices: a pair that does not fit is no slow one. Both are completed to low rank. Gavel takes over the
pairs of the nearest reference job (dissertation, Sec. 5.6); we take the completed entries where the other job
is a reference, because they are nearer to what is measured, and the nearest job's where both are new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np

from schedsearch.cluster.demand import FloatArray
from schedsearch.cluster.estimator.completion import Settings, chosen_settings, complete
from schedsearch.cluster.estimator.fingerprints import KEPT, Fingerprints, fingerprints
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.throughputs import Throughputs

FITS = 0.5
"""Two jobs are taken to fit on a GPU where the completed matrix of 0 (no) and 1 (yes) is at least this."""

_Pairs = dict[tuple[str, str, int], dict[str, tuple[float, float]]]


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


@dataclass(frozen=True, eq=False)
class _Completion:
    """Fingerprints without gaps.

    Attributes:
        of: What was measured.
        shares: Shares of all, in the same shape.
        nearest: Column of the reference job that each row is most like; its own for a reference job.
    """

    of: Fingerprints
    shares: FloatArray
    nearest: Sequence[int]


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
    pairs: _Pairs = {key: dict(by_type) for key, by_type in measured.pairs.items()}
    nearest: dict[tuple[str, int], str] = {}
    chosen: dict[int, tuple[Settings, Settings]] = {}
    for gpus in sorted({gpus for _, gpus in measured.alone}):
        found = fingerprints(measured, gpus, references)
        if not np.isfinite(found.shares).any():
            continue
        chosen[gpus] = (settings or {}).get(gpus) or _chosen(found, seed)
        completed = _completed(found, *chosen[gpus])
        for job_type, column in zip(found.types, completed.nearest, strict=True):
            if job_type not in found.references:
                nearest[job_type, gpus] = found.references[column]
        for key, gpu_type, rates in _estimates(measured, completed):
            one, other, _ = key
            if gpu_type not in measured.pair(one, other, gpus):
                known = key if key in pairs or (other, one, gpus) not in pairs else (other, one, gpus)
                pairs.setdefault(known, {})[gpu_type] = rates if known == key else rates[::-1]
    return PairEstimate(replace(measured, pairs=pairs), nearest, chosen)


def with_measurement(
    measured: Throughputs,
    pair: tuple[str, str, int],
    gpu_type: str,
    rates: tuple[float, float],
) -> Throughputs:
    """Return throughputs in which a pair is as it was measured while it ran; estimate the others anew then.

    Args:
        measured: Measured rates, without what was estimated.
        pair: Two types of jobs, and their scale factor.
        gpu_type: Where they ran.
        rates: Rates of both jobs, in the order of the pair, in steps per second.
    """
    one, other, gpus = pair
    key, rates = ((other, one, gpus), rates[::-1]) if (other, one, gpus) in measured.pairs else (pair, rates)
    return replace(measured, pairs={**measured.pairs, key: {**measured.pairs.get(key, {}), gpu_type: rates}})


def _matrices(found: Fingerprints) -> tuple[FloatArray, FloatArray]:
    """Return who fits, and the shares of those who do."""
    flat = found.flat()
    return np.where(np.isnan(flat), np.nan, flat > 0), np.where(flat > 0, flat, np.nan)


def _chosen(found: Fingerprints, seed: int) -> tuple[Settings, Settings]:
    fits, shares = _matrices(found)
    return chosen_settings(fits, seed), chosen_settings(shares, seed)


def _completed(found: Fingerprints, of_fits: Settings, of_shares: Settings) -> _Completion:
    fits, shares = _matrices(found)
    can_share = complete(fits, of_fits.rank, of_fits.regularization) >= FITS
    all_shares = np.clip(complete(shares, of_shares.rank, of_shares.regularization), 0.0, 1.0)
    both = np.where(can_share, all_shares, 0.0).reshape(found.shares.shape)
    both[(both == 0).any(axis=-1)] = 0.0
    return _Completion(found, both, _nearest(found, both))


def _nearest(found: Fingerprints, shares: FloatArray) -> list[int]:
    """Return the column of the reference job whose row has the least angle to each row."""
    flat = shares.reshape(len(found.types), -1)
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    unit = flat / np.where(lengths > 0, lengths, 1.0)
    rows = [found.row[reference] for reference in found.references]
    cosines = unit @ unit[rows].T
    for column, row in enumerate(rows):
        cosines[row, column] = np.inf
    return [int(column) for column in cosines.argmax(axis=1)]


def _estimates(
    measured: Throughputs, completed: _Completion
) -> Iterator[tuple[tuple[str, str, int], str, tuple[float, float]]]:
    """Yield all pairs of types with their estimated throughputs on each GPU type."""
    found, gpus = completed.of, completed.of.scale_factor
    for one, other in combinations_with_replacement(found.types, 2):
        for number, gpu_type in enumerate(found.gpu_types):
            first, second = _shares_of(completed, one, other, number)
            rates = (
                first * measured.rate(one, gpus, gpu_type),
                second * measured.rate(other, gpus, gpu_type),
            )
            yield (one, other, gpus), gpu_type, rates if all(rates) else (0.0, 0.0)


def _shares_of(completed: _Completion, one: str, other: str, gpu_type: int) -> tuple[float, float]:
    """Return what both keep; of two new types each keeps what it keeps beside the other's nearest."""
    found, shares = completed.of, completed.shares
    row, other_row = found.row[one], found.row[other]
    if other in found.references:
        kept, left = shares[row, gpu_type, found.references.index(other)]
        return kept, left
    if one in found.references:
        kept, left = shares[other_row, gpu_type, found.references.index(one)]
        return left, kept
    return (
        shares[row, gpu_type, completed.nearest[other_row], KEPT],
        shares[other_row, gpu_type, completed.nearest[row], KEPT],
    )
