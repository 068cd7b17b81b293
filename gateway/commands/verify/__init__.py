"""``pgsluice verify``: compare the source, filtered by the definitions, with the rebuilt tables.

    m0        chunks of the source, each under      S: keys that      m: the state of the
    a state   a snapshot of its own                 changed meanwhile  tables that is compared
    ──┼──────────┼────┼────┼────┼───────────────m1──────┼──────────────────┼────────►
      └──── the topic says which keys changed ──┘       └─ what S does not ┘
                                                           see is applied

No transaction lasts longer than a chunk. A row whose key no record of the topic names between `m0`
and `m1`, a state after all chunks, is at `m1` as it was when it was read. The other keys are read
again in one short transaction, under one snapshot S. Then the tables are awaited after S, at the
state `m`: changes in the topic until there that S does not see are applied to the rows by a
subscriber's own rules, and the rows are what the tables should hold at `m`.

A table whose filter is over other tables is compared at a state at which none of its rows moves, as
the MOVE markers say, if there is one within a minute. A row that was read because it moves has no
transaction: it is later than S where it is placed after the server's WAL position behind S. Rows
that differ in one round and agree in a later one have moved; one that differs in all is different.

A transaction can be published before a snapshot sees it, for example under synchronous replication.
A row read like this differs, and differing rows are read and compared once more before they are
reported.
"""
