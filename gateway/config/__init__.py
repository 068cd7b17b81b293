"""The configuration file and the environment as frozen dataclasses."""

from gateway.config.groups import choose_group, each_group
from gateway.config.load import find_settings, load_settings
from gateway.config.tables import CopyTable, LimitsTable, OnErrorTable, Settings

__all__ = [
    "CopyTable",
    "LimitsTable",
    "OnErrorTable",
    "Settings",
    "choose_group",
    "each_group",
    "find_settings",
    "load_settings",
]
