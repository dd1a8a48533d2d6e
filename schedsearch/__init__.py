"""When each block runs, and how fast: search, bounds, validation and energy of schedules. Knows no torch.

Rooms and files in the order in which to read them; each imports only those above it:

    results         results that show themselves in a notebook
    graph           longest paths, the least period of given orders, and its critical cycle
    memory_order    what must have been released first, where streams share a memory
    side_by_side    what blocks take on streams that slow each other down
    schedule        the start of every block, for a fixed number of micro-batches
    repetend        the pattern that repeats every period, and its extension to any number of micro-batches
    picture         a schedule as text
    validate        the rules, checked without knowing how a schedule was found
    metrics         bubble rate, memory, latency
    device_span     the time of an iteration without a barrier: each device by its own clock
    simulation      iterations under real conditions: jitter, slow devices, shared links
    proof           what no schedule can beat, with the data that prove it, and a check
    model           the rules of a schedule as constraints for CP-SAT and Z3
    solver          one question to Z3 or CP-SAT: is there a repetend of this period?
    state_space     exact answers by dynamic programming
    baselines       schedules made by hand
    semantics       versions of weights: which a block reads and makes, with and without a flush
    starts          repetends and schedules without a solver, to begin a search with
    core            the question to a search, what it knows, and its answer
    passes          special forms of a problem made plain: streams, slow streams, what to begin with
    procedures      ways to search, and the orchestrator that gives each its share of counted work
    robust          one order that is good in many scenarios
    unequal         one batch of micro-batches that differ, on one replica and on several
    tessel          Tessel's own search, beside ours
    searches        the entry of all searches, and what one proved, as data and in a file
    traces          traces of training runs, read to one table of operations
    replay          measured iterations of a training job: time by cause, and better orders
    replanning      ways to go on when a device is lost or slow
    layouts         the best division of layers among the stages of 1F1B and interleaved 1F1B
    schedule_file   the file form of all this
    energy          the time-energy frontier of a schedule
    figures         pictures of schedules and frontiers
    comparison      schedules of one model side by side
    planning        from a model and a cluster to the plan whose schedule is best
    cluster         many jobs on many kinds of GPUs: policies, rounds, simulator, prices
    notebook        results as tables, figures and HTML

The names that a notebook uses can be taken from this package; each is loaded at its first use:

>>> import schedsearch
>>> stages = schedsearch.stages_of(4, forward_ms=10, backward_ms=20, activation_mib=100, memory_mib=400)
>>> comparison = schedsearch.compare(stages, ["one_f_one_b", "zb_h1"], num_micro_batches=8)
>>> comparison.to_frame()[["schedule", "makespan_ms", "peak_memory_mib"]].values.tolist()
[['one_f_one_b', 330.0, 400.0], ['zb_h1', 270.0, 400.0]]
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from schedsearch.results import TableResult

__version__ = "0.2.0"

TableResult.presentation = staticmethod(lambda: importlib.import_module("schedsearch.notebook"))

_HOME = {
    "runtime": ("Pipeline", "clocks"),  # of a later layer, so that a training loop needs one import
    "schedsearch.searches.search": ("search",),
    "schedsearch.comparison.rows": ("Comparison",),
    "schedsearch.comparison.compare": ("compare",),
    "schedsearch.energy": ("Frontier", "frontier"),
    "schedsearch.layouts.layouts": ("BestLayouts", "layout"),
    "schedsearch.planning.planner": ("plan",),
    "schedsearch.planning.plans": ("Plans",),
    "schedsearch.simulation.conditions": ("Conditions", "Link"),
    "schedsearch.simulation.iterations": ("SimulatedIterations", "simulate"),
    "schedsearch.robust.scenarios": ("Scenario",),
    "schedsearch.robust.robust_search": ("RobustResult", "robust_search"),
    "schedsearch.core.answer": ("Answer", "Status"),
    "schedsearch.unequal.micro_batches": (
        "MicroBatchRow",
        "read_micro_batches",
        "unequal_batch",
    ),
    "schedsearch.replanning.replicated_job": ("ReplicatedJob",),
    "schedsearch.replanning.replan": ("replan",),
    "schedsearch.schedule": ("Schedule",),
    "schedsearch.schedule_file": ("read_schedule",),
    "schedsearch.baselines": (
        *("gpipe", "one_f_one_b", "eager_one_f_one_b", "one_f_one_b_plus", "interleaved_one_f_one_b"),
        *("chimera", "dual_pipe", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "one_f_one_b_v"),
        *("dual_pipe_v", "hanayo", "pipedream", "seq_one_f_one_b", "applicable"),
    ),
    "placements": ("Block", "Kind", "Placement", "Profile"),
    "placements.placement_file": ("read_placement",),
    "placements.shapes": ("v_shape", "x_shape", "m_shape", "nn_shape", "k_shape", "wave_shape", "loop_shape"),
    "placements.stages.stage_chain": ("place",),
    "placements.stages.stage_file": ("read_stages", "stages_of"),
}
_ALIASES = {"frontier": "compute_frontier", "clocks": "PlanClocks"}
_WITH_BAR = ("search", "compare", "frontier", "plan")
_HOME_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Import a public name from its own module, at its first use.

    Raises:
        ImportError: A folder of the user's is found in the place of a package of ours, or torch is missing.
    """
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        member = getattr(importlib.import_module(_HOME_OF[name]), _ALIASES.get(name, name))
    except (ImportError, AttributeError) as error:
        if (reason := _reason(error)) is None:
            raise
        raise ImportError(f"schedsearch.{name}: {reason}") from None
    return (
        importlib.import_module("schedsearch.core.progress").with_bar(name, member)
        if name in _WITH_BAR
        else member
    )


def __dir__() -> list[str]:
    """Return the names that can be used."""
    return sorted({*globals(), *_HOME_OF})


_ROOT = Path(__file__).resolve().parents[1]
"""Where the four packages are."""


def put_first() -> None:
    """Put our packages before the user's folders of the same names in ``sys.path``, also for child processes.

    The working directory stays in the path, at its end.
    """
    if any(_others(package) for package in ("placements", "runtime", "experiments")):
        sys.path.insert(0, str(_ROOT))
        os.environ |= import_paths()
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))


def import_paths() -> dict[str, str]:
    """Return the environment in which a process of Python finds our packages first."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")]), str(Path.cwd())]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONSAFEPATH": "1"}


def _others(package: str) -> str | None:
    """Return the folder that is found in the place of a package of ours; None if ours is found."""
    if package in sys.modules:
        paths = [*getattr(sys.modules[package], "__path__", [])]
    else:
        spec = find_spec(package)
        paths = [] if spec is None else [*(spec.submodule_search_locations or [str(spec.origin)])]
    return paths[0] if paths and Path(paths[0]).resolve().parent != _ROOT else None


def _reason(error: Exception) -> str | None:
    """Return why one of our packages cannot be imported, in one line; None for any other error."""
    for package in ("placements", "runtime"):
        if folder := _others(package):
            return (
                f"{folder} has the name of a package of schedsearch and is found before it; "
                "rename it, or take its folder out of sys.path"
            )
    if getattr(error, "name", None) == "torch":
        return "torch is not installed; pip install 'schedsearch[runtime]'"
    return None
