"""The scene of the gateway, for the tests of examples/."""

from tests.support.gateway.scene import scene

__all__ = ["scene"]
