"""The scene of the gateway's oracle tests."""

from tests.gateway_scene import scene

__all__ = ["scene"]
