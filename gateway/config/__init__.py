"""The gateway's settings, as frozen dataclasses.

They are declared and parsed in `schemas.settings`, which the Spark job shares; here is what the
gateway alone checks, and the settings of each of several gateways (`groups`).
"""

from gateway.config.groups import choose_group, each_group
from gateway.config.load import load_settings
from schemas.settings.tables import CopyTable, LimitsTable, OnErrorTable, Settings

__all__ = [
    "CopyTable",
    "LimitsTable",
    "OnErrorTable",
    "Settings",
    "choose_group",
    "each_group",
    "load_settings",
]
