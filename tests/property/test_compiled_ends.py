"""END markers in C against those that are made in Python, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.lsn import Lsn
from gateway.core.records import Feed
from gateway.envelope.markers import encode_end, encode_end_of
from gateway.routing.row.counters import TopicCounter, pop_counts
from gateway.routing.row.native import why_interpreted
from gateway.routing.short_transactions import series_router
from tests.support.gateway.routing_scene import T1_TABLE, Gateway, publish

if why_interpreted() is None:

    @given(
        counted=st.lists(
            st.tuples(st.integers(0, 11), st.sampled_from([0, 1, 2, 63, 64, 2**31, 2**40])),
            max_size=30,
        ),
        end_lsn=st.integers(0, 2**63 - 1),
        name=st.sampled_from(["tables", "süd", "表"]),
    )
    def test_end_markers_are_the_same_bytes_in_c(
        counted: Sequence[tuple[int, int]], end_lsn: int, name: str
    ) -> None:
        # Topics of four subscriptions; one may be touched several times, or for nothing.
        feeds = [Feed(f"s{n}", f"s{n}.transaction", b"\0\0\0\0%d" % n, {}) for n in range(4)]
        common = encode_end_of(xid=7, commit_lsn=1, end_lsn=end_lsn, commit_time=2, origin=name)
        headers = [("op", b"END")]
        gateway = Gateway([T1_TABLE], [publish()])
        compiled = series_router(gateway.routes, b"gw", feeds, lambda: 1)
        assert compiled is not None
        forms = []
        for _ in range(2):
            topics = [
                TopicCounter(f"s{n % 4}.{name}.{n}", f"s{n % 4}", T1_TABLE, 1, 1, n, n % 4)
                for n in range(12)
            ]
            for number, records in counted:
                topics[number].records += records
                topics[number].others += records // 2
            forms.append((topics, [topics[number] for number, _ in counted]))
        (these, touched), (those, touched_in_c) = forms

        expected = [
            (feed.markers, 0, None, feed.prefix + encode_end(common, counts), headers)
            for subscription, counts in pop_counts(touched).items()
            for feed in feeds
            if feed.subscription == subscription
        ]
        ended: dict[str, Lsn] = {}
        markers = compiled.end(touched_in_c, common, Lsn(end_lsn), headers, ended)

        assert markers == expected
        assert all(marker[4] is headers for marker in markers)
        assert ended == {marker[0].removesuffix(".transaction"): end_lsn for marker in expected}
        state = [[(c.records, c.others, c.inserts) for c in part] for part in (these, those)]
        assert state[0] == state[1]
