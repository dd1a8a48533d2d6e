"""From a schedule and its clocks to scripts, devices and measurements: ``schedsearch run``.

- `options`; `run_options`: checked before any work starts; `planned_model`: the model of a plan
- `scripts`: generated and proved; `measured_run`: started, followed, compared with the unpipelined model
- `simulated_run`: in virtual time; `traces`: a run beside its plan
- `inference`: requests, their latency and throughput, as planned and as measured
- `followed_server`: a run that follows the plans of a server, from its first iterations on
- `beside`: what people use, at the same costs; `resumed`: going on with a run that stopped
- `report`: what people look at; `task`: all of it
"""
