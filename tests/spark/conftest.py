"""The scene of the gateway, for the tests of examples/."""

from tests.support.gateway_scene import scene

__all__ = ["scene"]
