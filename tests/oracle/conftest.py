"""The scene of the gateway's oracle tests."""

from tests.support.gateway.scene import scene

__all__ = ["scene"]
