"""A server that keeps the frontiers of many jobs, and says which plan each of them runs now.

It does what Perseus's server does (Perseus, Sec. 3.2 and Table 2): it takes schedules and profiles, computes
frontiers in processes of their own, and at word of a straggler deploys the plan for min(T*, T'). It knows
nothing of devices; `runtime.client` carries plans to them. It has no users, at most one token: whoever bears
it may do everything.

Read `bodies` (what requests and answers carry, and why a request is refused), `storage` (the database, whose
rows are all that the server knows), `workers` (compute frontiers), `service` (all requests), `access` (the
token, and how much a request may carry), `app` (HTTP, and requests that wait for a plan) and `__main__`.
"""

DEFAULT_MAX_BODY_MB = 32.0
"""Millions of bytes that a request may carry; a schedule of 100 000 blocks takes a few."""
