"""Moves: rows that enter or leave a subscription because another table has changed. Pure.

When a transaction changes the set of a sub-select, rows of the outer table that it has not touched
are wanted from now on, or no longer. Rows that have one value in the columns of a test are a
*slice*; the slices of the values that have changed become *unsettled* for the subscription, and are
read from the source (`reads`). Until then nobody knows which of their rows the subscriber has.

    a change is judged for each subscription by two questions: has the subscriber the old row, by
    the sets as of the transaction's beginning; is the new row wanted, by those as of its end

    has old   new wanted   sent
    yes       yes / no     u / d
    no        yes / no     c / nothing
    maybe     yes / no     c, which replaces what there may be / d

The answer is maybe if the filter's result depends on a test of an unsettled slice, or if the row's
key is unsettled. A row that lacks unchanged values cannot be sent as a c: then its key becomes
unsettled, and the row is read by it; if the subscriber may have the old row, a u is sent meanwhile,
which is right if it has it and is skipped if it has not.

Why the table is the source's, filtered, for all rows that are not unsettled. Let P be a position.

A row with an exact record at or before P is right until it is changed again or a test of it has
another result; the first is published with a record that is right by the table above, the second
makes its slice unsettled. u after "yes" is exact because the subscriber has the row.

A slice is settled by reads of it that are placed as the chunks of a copy are: at P, what was read
under a snapshot S and brought to P by the changes that S does not see (`gateway.copy.unseen`) is
what the source has. A row of the slice at P is in one of the chunks, or was changed since the slice
became unsettled and has a record of its own, or its key is unsettled. A row that the subscriber has
and that is not in the slice at P any more was changed since then, too: its record came after
"maybe". A row that a chunk lacks values of is listed by its key.

Chunks of one slice are placed at several positions. If the slice becomes unsettled again between
two of them, the rows of the first ones are wrong: it is read again. A slice that is one chunk is
judged by the sets at P only, whatever happened while it was read. Therefore a slice whose chunks
were voided `TRIES` times is read as one: its rows wait in a spool, the stream goes on, and what
waits is the placing of its rows. Thus every slice is settled, however often its membership changes.

Changes that were published before this process began cannot be shown to it: the reader waits for
the transactions that ran when the stream was begun, as for copies. Unsettled slices and keys are
committed with the batch (`state`) and read from their beginning by the next process.

If any value may have changed (TRUNCATE inside, NULL in a NOT IN, very many values), the table is
copied again for the subscription. Until that copy begins, the answer to the first question is maybe
for all rows. A copy that is under way does not mind moves: rows are judged where its chunks are
placed, and rows that a move sends before their chunk comes are the rows as they are.
"""
