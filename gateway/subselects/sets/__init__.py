"""Sets of values: what a sub-select returns, with counts, at one position of the stream. Pure.

Nothing is read from the source to follow a change. An inner row is reduced to an entry: its value,
the results of the plain filters, and the values that nested sub-selects test. Entries are counted.
All of them come from columns of the replica identity, so that a row that was has the same entry as
when it was counted; addition is commutative, so that a read of the table is brought to any position
by adding the changes that its snapshot does not see (`building`). When a nested set changes, the
entries that test its values are found by an index, and counted again.
"""
