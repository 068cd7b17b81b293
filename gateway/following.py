"""Follow the source's catalog: the plan as of now, when something in it has changed.

A publication of the database can be altered, and partitions come and go, while the gateway runs.
pgoutput decodes each change with the catalog of its moment; what the gateway reads is the catalog
of now. The two are the same as long as the gateway keeps up; one that is behind takes the changes
before the last alteration by the last definition already.
"""

from __future__ import annotations

import logging
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.definitions.combine import make_plan
from gateway.definitions.model import Definitions, Plan
from gateway.errors import GatewayError, TransientError
from gateway.observe import event
from gateway.source.catalog import read_catalog
from gateway.source.watch import catalog_digest

__all__ = ["PlanReader"]

_LOG: Final = logging.getLogger(__name__)


class PlanReader:
    """Reads the plan of one definitions text anew, for as long as an attempt lasts."""

    def __init__(
        self,
        settings: Settings,
        connection: psycopg.Connection,
        definitions: Definitions,
        plan: Plan,
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._definitions = definitions
        self._plan = plan
        self._digest = ""  # what `plan` was made from may have changed since: look once

    def now(self) -> Plan | None:
        """Return the plan as of now; None when it is as it was, or cannot be made.

        Raises:
            TransientError: the connection is gone.
        """
        digest = catalog_digest(self._connection, self._definitions, self._plan)
        if digest == self._digest:
            return None
        self._digest = digest
        try:
            plan = make_plan(
                self._definitions,
                read_catalog(self._connection, self._definitions),
                prefix=self._settings.source.slot,
                missing_identity=self._settings.definitions.missing_identity,
            )
        except TransientError:
            raise
        except GatewayError as error:
            event(
                _LOG,
                logging.ERROR,
                "the catalog has changed so that the definitions are refused, the old ones stay",
                error=error.message,
                hint=error.hint or "",
            )
            return None
        if plan == self._plan:
            return None
        self._plan = plan
        return plan
