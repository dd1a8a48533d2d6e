"""The way to lock a clock without being root: a helper of this project on a Unix socket.

It does not know schedules. Nothing here listens on a network.

Read `allowed` (who may set which clocks of which GPUs), `helper` (serves them: ``python -m runtime.clock
serve``) and `opening` (the way that this machine offers).
"""
