"""The requests of `runtime.server` in Python; see `runtime.plans.plan_client`."""

from runtime.plans.plan_client import ServerClient

__all__ = ["ServerClient"]
