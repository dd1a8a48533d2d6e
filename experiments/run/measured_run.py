"""The scripts of a run: started, followed, compared with the unpipelined model, traced beside their plan.

They may follow the plans of a server, that is there or is started for the run; it is given the profile of
the schedule, or none. The run's parts of a report are here too.
"""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from unittest.mock import patch

from experiments.config.command import Failed
from experiments.report.html_report import Fact, Section, write_report
from experiments.run.options import RuntimeOptions
from experiments.run.resumed import KeptOptions, resume_command, save_options
from experiments.run.run_options import as_option_errors, devices_in_words
from experiments.search.profile_reading import CostSource
from experiments.search.report import file_facts
from placements import Placement, Profile
from placements.forms.texts import write_json
from runtime.execution.measurement import Measurement
from runtime.execution.results import Progress
from runtime.execution.run_options import RunOptions
from runtime.launching.launch import LaunchError, launch
from runtime.options.run import UserRunOptions
from runtime.plans.plan_client import JOB_VARIABLE, SERVER_VARIABLE, ServerClient, ServerError
from runtime.plans.planned import PlannedIteration
from runtime.profiling.records import Record, of_copies
from runtime.profiling.trace import write_trace
from runtime.profiling.utilisation import UtilisationTable, utilisation_table
from runtime.program.calls import ScriptError
from runtime.program.deadlock import UnsafeProgramsError
from schedsearch.core.progress import StepBar
from schedsearch.schedule import Schedule

log = logging.getLogger(__name__)

RISE = 10
"""Factor on the first loss from which on a training is said to diverge."""

OWN_SERVER = "own"
"""A value of ``runtime.server``: one is started for the run."""


def run_and_save(
    kept: KeptOptions, placement: Placement, directory: Path, checkpoints: Path | None = None
) -> Measurement:
    """Run the scripts, compare with the unpipelined model, write ``measurement.json``.

    The options are written beside it, for whoever resumes the run. It goes on from the newest of the
    checkpoints, or begins anew without a folder of them.

    Raises:
        OptionError: The scripts cannot run so many micro-batches, or not go on from the checkpoints.
        Failed: The run failed; the message ends with the command that resumes it.
    """
    options = kept.runtime
    save_options(kept, directory)
    log.info("run: starting %s with %s", devices_in_words(placement), options.launcher)
    if options.checkpoint_every:
        log.info("if the run dies, resume it: %s", resume_command(directory))
    bar, losses = StepBar("run"), list[float]()

    def show(done: Progress) -> None:
        bar(str(done), done.iteration + 1, options.iterations)
        losses.append(done.loss)
        if done.note:
            log.info("%s", done.note)
        warn_of_rise(losses)

    own = {each.name: getattr(options, each.name) for each in fields(UserRunOptions)}
    own |= {"checkpoints": directory / "checkpoints", "resume": checkpoints}
    own |= {"clock_latency": kept.clock_latency}
    run_options = RunOptions.of(own)
    with bar, as_option_errors(ScriptError):
        try:
            measurement = launch(directory / "scripts", sum(placement.gpus), run_options, show)
        except UnsafeProgramsError as error:
            raise Failed(f"the run failed: {error}") from None
        except LaunchError as error:
            raise Failed(f"the run failed: {error}\nresume it: {resume_command(directory)}") from None
    errors = measurement.comparison
    if errors is not None and not math.isfinite(errors.max_gradient_error + errors.max_parameter_error):
        wrong = "a gradient or parameter is not finite, or is not 0 where that of the unpipelined model is 0"
        raise Failed(f"the run diverged: {wrong}; lower runtime.learning_rate, or look at the data")
    write_json(directory / "measurement.json", measurement.to_dict())
    log.info("%s", describe(measurement))
    for iteration, version, time_ms in measurement.plans:
        log.info("%-12s%d of the server, %.6g ms, from iteration %d on", "plan", version, time_ms, iteration)
    return measurement


def warn_of_rise(losses: Sequence[float]) -> None:
    """Log a line if the last loss is the first one that is far above the first iteration's."""
    limit = RISE * abs(losses[0])
    if losses[-1] > limit >= max(losses[:-1], default=math.inf):
        rise = f"from {losses[0]:.4g} to {losses[-1]:.4g} in iteration {len(losses) - 1}"
        log.warning(f"the loss rose {rise}; lower runtime.learning_rate")


def describe(measurement: Measurement) -> str:
    """Return losses, the comparison with the unpipelined model, and clocks, in lines."""
    blocking = ", blocking" if measurement.blocking else ""
    first, last = (sum(losses) / len(losses) for losses in (measurement.losses[0], measurement.losses[-1]))
    why, comparison = f"(verify={measurement.verify}: {measurement.verify_reason})", measurement.comparison
    compared = f"not compared with the unpipelined model\n{why}"
    if comparison is not None:
        which = {"first": "first iteration", "all": "all iterations"}[measurement.verify]
        compared = (
            f"{which} compared with the unpipelined model\n{why}:\nlargest relative gradient error "
            f"{comparison.max_gradient_error:.1e}, bitwise equal to a replay in one process: "
            f"{'yes' if comparison.bitwise_equal else 'no'}"
        )
    return (
        f"run         loss {first:.4f} to {last:.4f} in {measurement.iterations} iterations, "
        f"{measurement.backend}{blocking}\n"
        f"{textwrap.indent(compared, 12 * ' ')}\n"
        f"clocks      {measurement.clock_backend}"
    )


def save_trace(
    records: Sequence[Sequence[Record]],
    placement: Placement,
    directory: Path,
    planned: PlannedIteration | None = None,
    costs: CostSource | None = None,
) -> UtilisationTable:
    """Write ``trace.json`` and ``trace.csv`` of a run, and a line; return the table.

    The records of all devices are of the same iterations; the plan, where it is known, is of the last one.
    """
    records = [of_copies(of_device, placement) for of_device in records]
    write_trace(directory / "trace.json", placement, records, planned, costs.to_dict() if costs else None)
    table = utilisation_table(placement, [of_device[-1] for of_device in records], planned)
    table.write_csv(directory / "trace.csv")
    log.info("%s", table.describe())
    return table


def write_resumed_page(
    placement: Placement, measurement: Measurement, path: Path, utilisation: UtilisationTable | None = None
) -> Path:
    """Write the page of a run that went on, whose schedule and plans are not known any more."""
    first = Fact("First iteration", str(measurement.first_iteration), "of the run that went on")
    return write_report(
        path,
        f"{placement.name} on {placement.num_devices} devices, {measurement.num_micro_batches} micro-batches",
        [run_section(measurement, utilisation), Section("Files", file_facts(path.parent))],
        summary=(first, equality(measurement)),
    )


def equality(measurement: Measurement) -> Fact:
    """Return whether the run was equal to the unpipelined model, as far as it was compared."""
    label, comparison = "Equal to the unpipelined model", measurement.comparison
    why = f"verify={measurement.verify}: {measurement.verify_reason}"
    if comparison is None:
        return Fact(label, "not compared", why)
    which = {"first": "the first iteration", "all": "all iterations"}[measurement.verify]
    note = f"losses, gradients and parameters of {which} within {comparison.tolerance:.2g} ({why})"
    return Fact(label, "yes" if comparison.is_equal else "no", note, good=comparison.is_equal)


def run_section(measurement: Measurement, utilisation: UtilisationTable | None) -> Section:
    """Return losses, times, memory and errors of a run, and the last iteration if it was recorded."""
    losses = [sum(each) / len(each) for each in measurement.losses]
    pairs = zip(measurement.peak_rss_mib, measurement.rss_after_import_mib, strict=True)
    own_mib = ", ".join(f"{peak - before:.0f}" for peak, before in pairs)
    facts = [
        Fact("Backend", measurement.backend, ", ".join(sorted(set(measurement.device_names)))),
        Fact("Loss", ", ".join(f"{loss:.4f}" for loss in losses), "mean of the micro-batches, by iteration"),
        Fact("Iteration", ", ".join(f"{time:.1f}" for time in measurement.time_ms) + " ms"),
        Fact("Memory", f"{own_mib} MiB", "peak of each process, above its memory after the imports"),
    ]
    if (errors := measurement.comparison) is not None:
        is_bitwise, against = errors.bitwise_equal, "against the unpipelined model"
        replay = "to the same model in one process, in the same order"
        facts += [
            Fact("Largest loss error", f"{errors.max_loss_error:.1e}", f"relative, {against}"),
            Fact("Largest gradient error", f"{errors.max_gradient_error:.1e}", "relative"),
            Fact("Largest parameter error", f"{errors.max_parameter_error:.1e}", "after the last step"),
            Fact("Bitwise equal", "yes" if is_bitwise else "no", replay, good=is_bitwise),
        ]
    facts.append(Fact("Clocks", measurement.clock_backend))
    if utilisation is not None:
        planned_ms, own = utilisation.planned_ms, "of the same measured block times"
        planned = "" if planned_ms is None else f"planned: {planned_ms:.6g} ms"
        facts.append(Fact("Last iteration", f"{utilisation.measured_ms:.6g} ms", planned))
        facts.append(Fact("Without transfer time", f"{utilisation.zero_comm_ms:.6g} ms", own))
    for device, shares in enumerate(utilisation.devices if utilisation is not None else ()):
        planned = "" if shares.planned is None else f"planned: {shares.planned:.1%}"
        share = f"computes {shares.measured:.1%}, waits {shares.waiting:.1%}"
        facts.append(Fact(f"Device {device}", share, planned))
    return Section("Run", tuple(facts))


@contextmanager
def followed_server(
    options: RuntimeOptions, schedule: Schedule, profile: Profile | None, directory: Path
) -> Iterator[None]:
    """Register the schedule, and let the processes that are started inside follow its plans.

    At the end the frontier that the server has is in ``served_frontier.json``.

    Raises:
        Failed: The server is not there, or refuses the job.
    """
    if options.server is None:
        yield
        return
    with ExitStack() as stack:
        try:
            url = stack.enter_context(_started(directory)) if options.server == OWN_SERVER else options.server
            client = ServerClient(url)
            job = client.register(schedule.per_micro_batch)
            if profile is not None and not options.profile_online:
                client.upload(job, profile)
                client.wait_until_ready(job)
        except ServerError as error:
            raise Failed(f"runtime.server: {error}") from None
        log.info("%-12s%s, job %s; tell of a straggler:", "server", url, job)
        log.info("""  curl -d '{"id": 0, "degree": 1.2}' %s/jobs/%s/straggler""", url, job)
        with patch.dict(os.environ, {SERVER_VARIABLE: url, JOB_VARIABLE: job}):
            yield
        try:
            write_json(directory / "served_frontier.json", client.frontier(job))
        except ServerError as error:
            log.warning("the server has no frontier: %s", error)


@contextmanager
def _started(directory: Path) -> Iterator[str]:
    """Start a server on a free port and return its URL.

    Raises:
        Failed: It does not start; the message is its own line.
    """
    words = ["runtime.server", "--port", "0", "--jobs", str(directory / "jobs"), "--workers", "1"]
    pipe = subprocess.PIPE
    server = subprocess.Popen([sys.executable, "-m", *words], text=True, stdout=pipe, stderr=pipe)
    assert server.stdout is not None and server.stderr is not None
    try:
        if not (line := server.stdout.readline()):
            raise Failed(f"runtime.server: {server.stderr.read().strip().splitlines()[-1]}")
        yield line.split()[1].rstrip(",")
    finally:
        server.terminate()
        server.communicate()
