"""The scene of the gateway's fault tests."""

from tests.support.gateway_scene import scene

__all__ = ["scene"]
