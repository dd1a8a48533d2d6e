"""Which plan a job runs: a look-up in its frontier, for the worst straggler in force.

Nothing waits for a straggler to become due: whoever asks for the deployed plan finds it deployed then.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from runtime.server.errors import RequestError
from runtime.server.requests import Message
from runtime.server.storage import JobRow, PlanRow, State, StragglerRow
from runtime.server.stragglers import Announced, Straggler, worst
from schedsearch.energy.frontier import TIME_TOLERANCE


def tell(session: Session, job: JobRow, message: Message, now_s: float) -> None:
    """Note what is said about an accelerator, and deploy what follows from it now."""
    row = session.get(StragglerRow, (job.number, message.name))
    known = _read(row) if row is not None else Straggler()
    told = known.told(message.degree, now_s + message.delay_s, now_s)
    if row is None:
        row = StragglerRow(job=job.number, name=message.name)
        session.add(row)
    _write(session, row, told)
    settle(session, job, now_s)
    deploy(session, job)


def is_due(session: Session, job: JobRow, now_s: float) -> bool:
    """Tell whether `settle` has something to do."""
    due = select(StragglerRow.name).where(StragglerRow.job == job.number, StragglerRow.due_s <= now_s)
    return session.scalars(due.limit(1)).first() is not None


def settle(session: Session, job: JobRow, now_s: float) -> None:
    """Put in force what is due, and deploy what follows from it."""
    due = select(StragglerRow).where(StragglerRow.job == job.number, StragglerRow.due_s <= now_s)
    rows = session.scalars(due).all()
    for row in rows:
        _write(session, row, _read(row).settled(now_s))
    if rows:
        deploy(session, job)


def deploy(session: Session, job: JobRow) -> None:
    """Deploy the plan for min(T*, T') (Perseus, Sec. 3.1) as a new version, if it is another one than before.

    T' is the shortest iteration times the degree of the worst straggler in force.
    """
    if job.state != State.READY:
        return
    session.flush()
    position = _position_at(session, job, deadline_ms(session, job))
    if position != job.plan:
        job.plan = position
        job.version += 1


def deadline_ms(session: Session, job: JobRow) -> float:
    """Return T': when the worst straggler in force ends its iteration."""
    degree = session.scalar(select(func.max(StragglerRow.degree)).where(StragglerRow.job == job.number))
    return worst(() if degree is None else (degree,)) * plan_of(session, job, 0).time_ms


def plan_at(session: Session, job: JobRow, deadline: float) -> PlanRow:
    """Return the best plan that keeps a deadline in milliseconds.

    Raises:
        RequestError: The deadline is before the end of the shortest plan.
    """
    shortest_ms = plan_of(session, job, 0).time_ms
    if not deadline >= shortest_ms * (1 - TIME_TOLERANCE):
        raise RequestError(
            f"deadline_ms: {deadline:g} is below the shortest iteration of {shortest_ms:.6g} ms; "
            "give at least that"
        )
    return plan_of(session, job, _position_at(session, job, deadline))


def plan_of(session: Session, job: JobRow, position: int) -> PlanRow:
    """Return a plan of a job that is ready."""
    row = session.get(PlanRow, (job.number, position))
    assert row is not None, "a frontier has at least one plan, and versions are of plans that are there"
    return row


def _position_at(session: Session, job: JobRow, deadline: float) -> int:
    """Return the last plan that is not later than the deadline, or the shortest."""
    kept = PlanRow.time_ms <= deadline * (1 + TIME_TOLERANCE)
    return session.scalar(select(func.max(PlanRow.position)).where(PlanRow.job == job.number, kept)) or 0


def _read(row: StragglerRow) -> Straggler:
    if row.due_s is None or row.next_degree is None:
        return Straggler(row.degree)
    return Straggler(row.degree, Announced(row.next_degree, row.due_s))


def _write(session: Session, row: StragglerRow, known: Straggler) -> None:
    """Keep what is known of an accelerator; of a normal one, nothing."""
    row.degree = known.degree
    row.next_degree = known.announced.degree if known.announced else None
    row.due_s = known.announced.due_s if known.announced else None
    if known.is_normal:
        # A row that was added just now is written first, so that it can be deleted like any other.
        session.flush()
        session.delete(row)
