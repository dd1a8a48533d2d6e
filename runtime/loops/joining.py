"""How a process joins a loop of the user's own: which device it is, and the modules that it was given.

What each process is given is checked by all together, so that a wrong one ends all with one error.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from placements import Kind
from runtime.codegen.script import Script
from runtime.execution.process import Process
from runtime.execution.run_options import RunOptions
from runtime.loops.batches import BatchData
from runtime.models import GIVEN_MODEL, USER_MODEL, ModelOptions
from runtime.models.user.given import (
    GivenModules,
    GivenSource,
    Loss,
    LossWeight,
    Modules,
    is_list,
    own_modules,
    type_of,
)
from runtime.models.user.user_file import UserFile
from runtime.program.calls import ScriptError
from runtime.transport.agreement import PipelineError, agreed
from runtime.transport.protocol import Transport


def own_process(options: RunOptions) -> Process:
    """Return this process: of the script's process group, or as torchrun says."""
    if dist.is_initialized():
        return Process(dist.get_rank(), dist.get_world_size(), replace(options, backend=dist.get_backend()))
    try:
        return Process.of_torchrun(options)
    except ScriptError:
        raise ScriptError(
            "this is one of several processes; start all with: torchrun --nproc-per-node NUM_DEVICES SCRIPT"
        ) from None


def batch_data(
    script: Script,
    process: Process,
    transport: Transport,
    body: GivenModules | None = None,
    unequal: bool = False,
) -> BatchData:
    """Return what reads batches for the blocks of this process; with a body as that wants it."""
    model = script.model
    dtype: torch.dtype = getattr(torch, model.dtype)
    weighs, names = (False, {}) if body is None else (body.weight_of_loss is not None, body.read_names)
    where = process.device, model.seed, dtype, transport.device
    return BatchData(script.placement, *where, weighs, names, unequal)


class Given(NamedTuple):
    """What a script gives a pipeline; see `Pipeline`."""

    modules: Modules | str | Path
    loss: Loss | None
    loss_weight: LossWeight | None
    precision: str | None
    compile: str | None
    unequal: bool


def join(given: Given, script: Script, process: Process, transport: Transport) -> tuple[GivenModules, Script]:
    """Return the own blocks' modules, which know the parameters of all, and the script of their model.

    Raises:
        PipelineError: The modules of some process do not fit the placement.
    """
    placement, job = script.placement, script.model
    if given.unequal and script.specs is not None:
        raise ScriptError(
            f"unequal: the job, of the model {job.name!r}, has fixed shapes; generate it with "
            f"runtime.model={GIVEN_MODEL}"
        )
    own = [block.name for block in placement.on(process.device) if block.kind is Kind.F]
    modules = given.modules

    def found_modules() -> GivenSource:
        if not isinstance(modules, (str, Path)):
            return GivenSource(own_modules(modules, placement, own), job.seed, given.loss, given.loss_weight)
        file = UserFile(ModelOptions(USER_MODEL, path=str(Path(modules).resolve()), seed=job.seed))
        made = own_modules(file.modules_with_values(own), placement, own)
        loss, loss_weight = given.loss or file.loss, given.loss_weight or file.loss_weight
        return GivenSource(made, job.seed, loss, loss_weight)

    source, types = agreed(transport, process.device, found_modules, lambda found: type_of(found.given))
    found = sorted({dtype for dtype in types if dtype is not None})
    if len(found) > 1:
        raise PipelineError(f"modules: are of several types ({', '.join(found)}); convert them to one")
    dtype = found[0] if found and script.specs is None else job.dtype
    model = ModelOptions(
        GIVEN_MODEL, seed=job.seed, dtype=dtype, precision=given.precision, compile=given.compile
    )
    body, described = agreed(
        transport,
        process.device,
        lambda: GivenModules(model, placement, source, own, keeps_names=is_list(modules)),
        lambda body: body.described,
    )
    body.know(described)
    script = replace(script, model_data=model.to_dict())
    body.read_from(batch_data(script, process, transport, body, given.unequal))
    return body, script
