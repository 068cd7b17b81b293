"""Who a gateway is, for Kafka: the slot it reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlotIdentity:
    """One slot of one database of one PostgreSQL cluster; a primary and its standbys are one."""

    system_identifier: str
    database: str
    slot: str

    @property
    def transactional_id(self) -> str:
        """The same for every gateway that reads this slot, so that a newer one fences an older."""
        return f"pgsluice-{self.system_identifier}-{self.database}-{self.slot}"

    @property
    def key(self) -> tuple[str, str, str]:
        """System identifier, database and slot, as the keys of the progress topic have them."""
        return self.system_identifier, self.database, self.slot
