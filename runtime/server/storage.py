"""The server's memory on disk: a folder with two files of JSON for each job.

Every change is in a file before its request is answered, so that the server may be killed at any time. Most
are on the disk itself by then, and outlast the machine's end; messages about stragglers must be quick, and
may be lost with it.
"""

from __future__ import annotations

import fcntl
import shutil
from contextlib import suppress
from pathlib import Path

from placements.forms.texts import flush_folder, write_bytes
from runtime.server.job import Deployment, Job

_JOB, _DEPLOYMENT = "job.json", "deployment.json"


class StorageError(ValueError):
    """The folder cannot be used; the message says why and what to do, in one line."""


class JobFolder:
    """The jobs of a folder, which is made if it is not there; called by one thread at a time.

    Every change raises an `OSError` if it cannot be kept, and is then as if it had not been asked for.

    Raises:
        StorageError: The folder cannot be written, a file of it not be read, or another server owns it.
    """

    def __init__(self, path: Path) -> None:
        """Take the folder, by a lock that ends with the process."""
        self._path = path
        try:
            path.mkdir(exist_ok=True)
            self._owner = (path / "lock").open("ab")
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"jobs: {path} is in use by another server; stop that one or give another folder"
            ) from None
        except OSError as error:
            raise StorageError(
                f"jobs: {path} cannot be written ({error.strerror}); give another folder"
            ) from None

    def jobs(self) -> list[Job]:
        """Return all jobs, in the order of registration."""
        found = []
        for path in self._path.glob(f"*/{_JOB}"):
            try:
                job = Job.model_validate_json(path.read_bytes())
            except (OSError, ValueError):
                raise StorageError(
                    f"jobs: {path.parent} is not as this server writes it; remove it, or give another folder"
                ) from None
            with suppress(OSError, ValueError):  # lost with the machine
                newer = Deployment.model_validate_json(path.with_name(_DEPLOYMENT).read_bytes())
                job = job.model_copy(update={"deployment": newer})
            found.append(job)
        return sorted(found, key=lambda job: job.number)

    def keep(self, job: Job) -> None:
        """Keep a new job, or one that has changed; it is on the disk then."""
        self.keep_deployment(job)  # a job whose outcome is not kept is computed again, and deployed alike
        write_bytes(self._path / job.id / _JOB, job.model_dump_json().encode(), durable=True)
        flush_folder(self._path)

    def keep_deployment(self, job: Job) -> None:
        """Keep the deployment of a job, without waiting for the disk."""
        write_bytes(self._path / job.id / _DEPLOYMENT, job.deployment.model_dump_json().encode())

    def forget(self, job: Job) -> None:
        """Delete a job."""
        (self._path / job.id / _JOB).unlink()
        shutil.rmtree(self._path / job.id)

    def close(self) -> None:
        """Let others own the folder."""
        self._owner.close()
