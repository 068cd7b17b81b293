"""The configuration file and the environment as frozen dataclasses."""

from gateway.config.load import load_settings
from gateway.config.tables import CopyTable, LimitsTable, OnErrorTable, Settings

__all__ = ["CopyTable", "LimitsTable", "OnErrorTable", "Settings", "load_settings"]
