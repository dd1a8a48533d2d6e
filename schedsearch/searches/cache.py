"""Results of searches kept on disk, under the hash of everything that they depend on.

Entries are pickles, so a cache's directory is for those whom its user trusts. An entry is written under a
temporary name and renamed, so processes can share a directory; one that cannot be read is computed again. The
module does not know how a search is done, nor how much faster the next machine is: a result that a time limit
ended is kept as well as any other, and the limit is part of what it is kept under.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
from functools import cache
from importlib import metadata
from pathlib import Path

from placements.files import write_bytes
from schedsearch.core.answer import SearchReport, SearchResult, Status
from schedsearch.core.problem import Problem
from schedsearch.searches.methods import find
from schedsearch.validate import validate

log = logging.getLogger(__name__)

_LIBRARIES = ("z3-solver", "ortools", "networkx", "numpy", "scipy")
"""Libraries that a search calls, by the names of the distributions."""

_LAYERS = Path(__file__).parents[2]
"""Where the packages are."""

_LATER = frozenset({"certificate", "search_file", "schedule_file", "energy", "figures", "models", "planners"})
"""Rooms that are no part of a search: those after this one, and what makes placements of models."""


def cached_search(
    directory: Path | None, request: Problem, on_progress: SearchReport | None = None
) -> tuple[SearchResult, bool]:
    """Return the result of a search, from the cache where it is there, and whether it was.

    Results of interrupted searches, and of those that found nothing in their time, are not kept. A schedule
    from the cache is validated again.

    Args:
        directory: Folder of the cache; None for none.
        request: What to search.
        on_progress: Called with each step of a search; not for a result from the cache.

    Raises:
        ValueError: As `schedsearch.searches.methods.find`.
        OSError: The directory cannot be made.
    """
    if directory is None:
        return find(request, on_progress), False
    import joblib  # which a search without a cache does not wait for

    directory.mkdir(parents=True, exist_ok=True)  # before the work, which would be lost
    path = directory / f"{_hash(request)}.pkl"
    try:
        kept: object = joblib.load(path)
        if isinstance(kept, SearchResult) and _is_answer(kept, request):
            return kept, True
        log.warning("%s: does not hold a result of this kind; computed again", path)
    except FileNotFoundError:
        pass
    except Exception as error:  # a broken pickle may raise anything
        log.warning("%s: cannot be read (%s); computed again", path, type(error).__name__)
    result = find(request, on_progress)
    if not result.interrupted and result.status is not Status.UNKNOWN:
        _keep(path, result)
    return result, False


def _is_answer(result: SearchResult, request: Problem) -> bool:
    if result.schedule is None:
        return result.status is Status.INFEASIBLE
    return validate(result.schedule).placement == request.placement


def _keep(path: Path, result: SearchResult) -> None:
    """Write an entry; a full disk costs the entry, not the result."""
    import joblib

    buffer = io.BytesIO()
    joblib.dump(result, buffer, compress=3)
    try:
        write_bytes(path, buffer.getvalue())
    except OSError as error:
        log.warning("%s: cannot be written (%s); the result is not kept", path, error.strerror)


def _hash(request: Problem) -> str:
    """Return the name of an entry: a hash of the request, the code and the versions of the libraries."""
    import joblib

    versions = {name: metadata.version(name) for name in _LIBRARIES}
    key = {"request": request.to_dict(), "versions": versions, "source": source_hash()}
    text = json.dumps(key, sort_keys=True)
    return str(joblib.hash(text, hash_name="sha1"))


def sources() -> list[Path]:
    """Return the files that a result can depend on: imports go left, so none of the rooms after this one."""
    files = [*(_LAYERS / "schedsearch").rglob("*.py"), *(_LAYERS / "placements").rglob("*.py")]
    return sorted(file for file in files if not _LATER & set(file.relative_to(_LAYERS).with_suffix("").parts))


@cache
def source_hash() -> str:
    """Return a hash of all code that a result can depend on."""
    digest = hashlib.sha256()
    for path in sources():
        name = path.relative_to(_LAYERS).as_posix()
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
