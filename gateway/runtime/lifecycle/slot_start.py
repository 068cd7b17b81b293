"""The gateway's slot at a start: gathering facts, creating, streaming."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from gateway.config import Settings
from gateway.core.background import OnWait
from gateway.core.errors import SlotBusyError, TransientError
from gateway.core.failpoints import fail_point
from gateway.core.lsn import Lsn, format_lsn
from gateway.core.watermark import Watermark
from gateway.definitions.ddl.alterations import PREFIXES
from gateway.definitions.server import SUFFIXES
from gateway.envelope.envelope import package_version
from gateway.observe import event
from gateway.runtime.lifecycle.process import Process
from gateway.runtime.lifecycle.start_decision import Facts
from gateway.runtime.planning.ownership import claim_topics
from gateway.runtime.planning.routes import Outside
from gateway.runtime.planning.setup import Setup, commit_claim, make_sink, slot_identity
from gateway.runtime.wait_log import WaitNotice
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.own_topics.owners import Owner
from gateway.sink.own_topics.progress import read_progress, read_systems
from gateway.source.provisioning.own_publications import check_publications, ensure_publications
from gateway.source.provisioning.publication_state import read_with_updates
from gateway.source.session.blockers import Wait, waits
from gateway.source.session.connection import connect
from gateway.source.stream.connection import ReplicationConnection
from gateway.source.stream.server_position import server_position
from gateway.source.stream.slot import slot_status

__all__ = ["OPEN_TIMEOUT_S", "SlotStart"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 5.0
_WAITS: Final = "the slot waits for transactions that are still running"
OPEN_TIMEOUT_S: Final = 60.0
"""Seconds that a producer may take to fence its predecessor."""


@dataclass(frozen=True, slots=True)
class SlotStart:
    """The slot of ``[source] slot``, for one attempt.

    Attributes:
        settings: Settings, with the topics that renamed tables keep.
        setup: Plan, topics and routing of the configuration.
        outside: The connection to the source server, the registry and the evaluator.
        on_wait: Called while waiting for a server.
        made_at: Consistent point of the slot if this attempt has created it, or None.
        reader_pid: The server's process that streams the slot to this gateway; 0 before.
    """

    process: Process
    settings: Settings
    setup: Setup
    outside: Outside
    on_wait: OnWait
    made_at: Lsn | None = None
    reader_pid: int = 0

    def facts(self, recovered: CommittedState | None = None) -> Facts:
        """Gather the facts of a start; the server last, because it only moves forward.

        `recovered` is the progress that an open sink has read, or, for a first look, without a
        claim; None to read it now.
        """
        source, setup, outside = self.settings.source, self.setup, self.outside
        fingerprint = setup.definitions.fingerprint
        slot = slot_status(outside.connection, source.slot)
        elsewhere: list[str] = []
        if recovered is None:
            kafka, topic = self.settings.kafka, self.settings.topics.progress
            identity = slot_identity(setup.facts, self.settings)
            recovered = read_progress(kafka, topic, identity, settled=False)
            if recovered.watermark is None and slot is not None:
                # Its claim, which comes before a slot, may be in a Kafka transaction that is being
                # committed: that is waited for, also when it is this slot's own.
                recovered = read_progress(kafka, topic, identity)
            elif slot is None and recovered.watermark is not None:
                # Another gateway may have created it, and streamed, while Kafka was read.
                slot = slot_status(outside.connection, source.slot)
            elif recovered.watermark is None:
                elsewhere = read_systems(kafka, topic, identity, fingerprint)
        return Facts(
            name=source.slot,
            slot=slot,
            watermark=recovered.watermark,
            server=server_position(outside.connection, source.dsn, on_wait=self.on_wait),
            plan=setup.plan,
            definitions=fingerprint,
            policy=source.on_lost_slot,
            elsewhere=elsewhere,
            topic_names=self.settings.topics.names,
        )

    def facts_while_held(self, recovered: CommittedState) -> Facts:
        """Gather the facts again; what they say is final, because this gateway has the slot.

        Raises:
            TransientError: it has the slot no more; another one may have moved slot and watermark.
        """
        facts = self.facts(recovered)
        if facts.slot is None or facts.slot.active_pid != self.reader_pid:
            raise TransientError(
                f'replication slot "{facts.name}" was lost during the start: its stream has ended, '
                "and another gateway may lead"
            )
        return facts

    def make(self, because: str | None, seen: Watermark | None) -> Lsn:
        """Claim the slot in Kafka and create it; return its consistent point.

        Args:
            because: Reason for starting over, or None.
            seen: Watermark by which it was decided that there is no slot to go on with.

        Raises:
            SlotBusyError: another gateway has led meanwhile.
        """
        setup, outside = self.setup, self.outside
        if because is not None:
            event(_LOG, logging.WARNING, "all tables are copied again", because=because)
        outside.routes(setup.plan, setup.routing).register_all()
        self.claim()
        self.ensure_publications()
        sink = make_sink(self.settings, setup.facts, outside.registry)
        try:
            found = sink.open(OPEN_TIMEOUT_S, stopping=self.process.stopping).watermark
            if _position(found) != _position(seen):
                name = self.settings.source.slot
                raise SlotBusyError(f'another gateway has written for replication slot "{name}"')
            commit_claim(sink, setup.facts.timeline, setup.definitions.fingerprint)
        finally:
            sink.close(self.process.close_timeout_s())
        fail_point("start.claimed")
        return self._create()

    def _create(self) -> Lsn:
        """Create the slot; return its consistent point.

        Raises:
            SlotBusyError: another gateway has created it meanwhile.
            TransientError: transactions that were running have not ended in time.
        """
        dsn, slot = self.settings.source.dsn, self.settings.source.slot

        def look() -> Wait | None:
            with connect(dsn, statement_timeout_s=_LOOK_S, on_wait=self.on_wait) as connection:
                return next((w for w in waits(connection, slot) if w.task == "slot"), None)

        with ReplicationConnection(dsn, on_wait=self.on_wait) as replication:
            two_phase, on_wait = self.setup.protocol.two_phase, WaitNotice(_WAITS, look)
            point = replication.create_slot(slot, two_phase=two_phase, on_wait=on_wait)
        event(_LOG, logging.INFO, "slot created", slot=slot, consistent_point=format_lsn(point))
        return point

    @property
    def subscriptions(self) -> list[str]:
        """Names of the subscriptions that are published, whose topics are this gateway's."""
        muted = self.setup.routing.muted
        return [s.name for s in self.setup.plan.subscriptions if s.name not in muted]

    def claim(self) -> dict[str, Owner]:
        """Claim the topics of all subscriptions; refused if they are another gateway's.

        Returns:
            As `gateway.runtime.planning.ownership.claim_topics`.
        """
        facts, outside, names = self.setup.facts, self.outside, self.subscriptions
        return claim_topics(self.settings, outside.connection, facts, outside.registry, names)

    def start(self) -> ReplicationConnection:
        """Start the stream of the slot: from here on no other gateway leads."""
        setup = self.setup
        source = ReplicationConnection(
            self.settings.source.dsn,
            application_name=f"pgsluice {package_version()}",
            receiver_timeout_s=self.settings.source.receiver_timeout_s,
            on_wait=self.on_wait,
        )
        try:
            return source.start(
                self.settings.source.slot,
                # All of them: WAL that is still to be read may belong to another publication.
                [self.settings.source.slot + suffix for suffix in SUFFIXES],
                version=setup.protocol.version,
                streaming=setup.protocol.streaming,
                two_phase=setup.protocol.two_phase,
                binary=setup.protocol.binary,
                messages=setup.reports_ddl or bool(self.settings.messages.prefixes),
                prefixes=PREFIXES.union(self.settings.messages.prefixes),
            )
        except BaseException:
            source.close()
            raise

    def read_with_updates(self) -> frozenset[int]:
        """Return the OIDs of which the publications of the slot have updates or deletes."""
        names = [self.settings.source.slot + suffix for suffix in SUFFIXES]
        return read_with_updates(self.outside.connection, names)

    def ensure_publications(self) -> None:
        """Create or alter the publications of the slot as the plan needs them."""
        connection, plan = self.outside.connection, self.setup.plan
        prefix = self.settings.source.slot
        try:
            for line in ensure_publications(connection, plan, prefix=prefix):
                event(_LOG, logging.INFO, "publication", detail=line)
                self.process.members.forget()
        except BaseException:
            self.process.members.forget()  # a part of it may be committed
            raise
        if plan.held:
            return  # it would say to take out what is needed again once they are mended
        for line in check_publications(connection, plan, prefix=prefix):
            # Only removals are left, which the role may not do, or of locked tables.
            event(
                _LOG,
                logging.WARNING,
                "a publication has more than the plan needs",
                hint=f"let its owner run: {line}",
            )


def _position(watermark: Watermark | None) -> Lsn | None:
    return None if watermark is None else watermark.end_lsn
