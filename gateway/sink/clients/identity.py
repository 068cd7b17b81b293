"""Identity of a gateway in Kafka: the slot it reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlotIdentity:
    """Slot of a database of a PostgreSQL cluster; a primary and its standbys are one cluster."""

    system_identifier: str
    database: str
    slot: str

    @property
    def transactional_id(self) -> str:
        """Transactional id, shared by all gateways of this slot: a newer one fences an older."""
        return f"pgsluice-{self.system_identifier}-{self.database}-{self.slot}"

    @property
    def key(self) -> tuple[str, str, str]:
        """System identifier, database and slot, as in the keys of the progress topic."""
        return self.system_identifier, self.database, self.slot
