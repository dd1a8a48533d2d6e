"""A server that keeps the frontiers of many jobs, and says which plan each of them runs now.

It does the work of Perseus's server (Perseus, Sec. 3.2 and Table 2): it takes schedules and profiles,
computes frontiers in processes of their own, and at word of a straggler deploys the plan for min(T*, T'). It
knows nothing of devices; `runtime.client` carries plans to them. It has no users, at most one token: whoever
bears it may do everything.

Read `bodies` (fields of requests and answers, and why a request is refused), `job` (a job, the plan that it
runs, and jobs on disk), `workers` (compute frontiers), `service` (all requests), `app` (HTTP, its token, and
requests that wait for a plan) and `__main__`.
"""
