"""The scene of the gateway's oracle tests."""

from tests.support.gateway_scene import scene

__all__ = ["scene"]
