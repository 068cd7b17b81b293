package pgsluice.small;

import java.util.List;

/**
 * A change of one row.
 *
 * @param kind what happens
 * @param key canonical form of the key after the change; without a key, of the whole row
 * @param oldKey the same before the change: of a move, and of all but a put where there is no key
 * @param row the row after the change, without the columns that were not sent; null for a delete
 * @param isSent which columns of {@code row} were sent; null if all were
 */
record Change(Kind kind, List<Object> key, List<Object> oldKey, Object[] row, boolean[] isSent) {
    enum Kind {
        /** The row is {@code row}, whatever there was. */
        PUT,
        /** Columns of an existing row change. */
        SET,
        /** An existing row goes. */
        DELETE,
        /** An existing row gets another key, and columns. */
        MOVE
    }

    /** Returns an existing row after the change. */
    Object[] over(Object[] before) {
        if (isSent == null) {
            return row;
        }
        Object[] made = before.clone();
        for (int at = 0; at < made.length; at++) {
            if (isSent[at]) {
                made[at] = row[at];
            }
        }
        return made;
    }
}
