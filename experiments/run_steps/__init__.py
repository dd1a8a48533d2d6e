"""The steps of a run: from a schedule and its clocks to scripts, devices, and what they measured.

It knows neither how the schedule was found nor what a report says. Read `scripts` (generated and proved),
`measured_run` (started, followed, compared with the unpipelined model), `simulated_run` (in virtual time),
`traces` (a run beside its plan), `beside` (what people use, at the same costs) and `resumed` (going on with a
run that stopped).
"""
