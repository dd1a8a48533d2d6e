"""Files of named tensors: safetensors, of which any part can be read or written by itself, and torch's own.

It does not know what the tensors are.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import torch
from torch import Tensor

SUFFIX = ".safetensors"
"""Of the files that can be written, and read as such; others are read as torch's."""

_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "bfloat16": "BF16",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
"""What safetensors calls torch's types."""


class TensorFileError(ValueError):
    """A file is not one of tensors; the message names it and the remedy in one line."""


class Part(NamedTuple):
    """A part of a tensor.

    Attributes:
        dim: The dimension that is cut.
        first: Index where the part begins.
        size: How many it has.
    """

    dim: int
    first: int
    size: int


@contextmanager
def open_tensors(path: Path) -> Iterator[TensorFile]:
    """Open a file, by its suffix.

    Raises:
        TensorFileError: It is not there, or not such a file.
    """
    if not path.is_file():
        raise TensorFileError(f"{path} is not a file; give a state dict ({SUFFIX}, or a file of torch.save)")
    if path.suffix != SUFFIX:
        yield _TorchFile(path)
        return
    try:
        file = safetensors.safe_open(path, framework="pt")
    except (OSError, safetensors.SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise TensorFileError(
            f"{path} is not a whole file of safetensors ({reason}); save it again"
        ) from None
    with file as opened:
        yield _SafetensorsFile(opened)


class _SafetensorsFile:
    """A file of safetensors.

    Args:
        file: Opened.
    """

    def __init__(self, file: Any) -> None:
        """Take it."""
        self._file = file

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of each tensor, by name."""
        names: list[str] = self._file.keys()
        return {name: tuple(self._file.get_slice(name).get_shape()) for name in names}

    def read(self, name: str, part: Part | None = None) -> Tensor:
        """Return a tensor, or a part of it, without reading the others."""
        if part is None:
            whole: Tensor = self._file.get_tensor(name)
            return whole
        chosen = (slice(None),) * part.dim + (slice(part.first, part.first + part.size),)
        found: Tensor = self._file.get_slice(name)[chosen]
        return found


class _TorchFile:
    """A state dict that `torch.save` wrote; what is not read of it stays on disk.

    Args:
        path: Path of the file.

    Raises:
        TensorFileError: It holds something else.
    """

    def __init__(self, path: Path) -> None:
        """Map it into memory."""
        try:
            found = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        except Exception as error:  # whatever a wrong file does
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            raise TensorFileError(
                f"{path} is not a state dict that torch can read ({reason}); save one with "
                "torch.save(module.state_dict(), FILE)"
            ) from None
        if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
            raise TensorFileError(
                f"{path} holds no mapping of names to tensors; save one with torch.save(module.state_dict(), "
                "FILE)"
            )
        self._tensors: Mapping[str, Tensor] = found

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of each tensor, by name."""
        return {name: tuple(value.shape) for name, value in self._tensors.items()}

    def read(self, name: str, part: Part | None = None) -> Tensor:
        """Return a tensor, or a part of it, without reading the others."""
        value = self._tensors[name].detach()
        return value if part is None else value.narrow(*part)


TensorFile = _SafetensorsFile | _TorchFile
"""An open file."""


class Form(NamedTuple):
    """What a file holds under a name.

    Attributes:
        dtype: The type, as torch names it.
        shape: The sizes.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """How much memory it takes."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return math.prod(self.shape) * int(dtype.itemsize)


class SafetensorsLayout:
    """Where each tensor of a file of safetensors is, so that any process can write its own into the file.

    Args:
        forms: Forms of all tensors, by name.
    """

    def __init__(self, forms: Mapping[str, Form]) -> None:
        """Lay the tensors out one after the other, by name."""
        self._forms = dict(sorted(forms.items()))
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        self._offsets: dict[str, int] = {}
        end = 0
        for name, form in self._forms.items():
            self._offsets[name] = end
            end += form.num_bytes
            header[name] = {
                "dtype": _NAMES[form.dtype],
                "shape": list(form.shape),
                "data_offsets": [self._offsets[name], end],
            }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self._header = len(text).to_bytes(8, "little") + text
        self._num_bytes = len(self._header) + end

    def create(self, path: Path) -> None:
        """Make the file, with a header and room for the tensors."""
        with path.open("wb") as file:
            file.write(self._header)
            file.truncate(self._num_bytes)

    def write(self, file: int, name: str, value: Tensor, part: Part | None = None) -> None:
        """Write a tensor, or a part of one, to its place.

        Args:
            file: Descriptor of the file.
            name: Name of the tensor.
            value: The tensor, or the part.
            part: Which part; None for the whole.
        """
        form = self._forms[name]
        dim, first, _ = part or Part(0, 0, 0)
        outer = math.prod(form.shape[:dim]) if part else 1
        rows = value.detach().cpu().contiguous().reshape(outer, -1)
        row_bytes = form.num_bytes // max(outer, 1)
        before = first * math.prod(form.shape[dim + 1 :]) * rows.itemsize if part else 0
        start = len(self._header) + self._offsets[name] + before
        for i, row in enumerate(rows):
            data = memoryview(row.view(torch.uint8).numpy()) if row.numel() else memoryview(b"")
            place = start + i * row_bytes
            while data:
                num_written = os.pwrite(file, data, place)
                data, place = data[num_written:], place + num_written
