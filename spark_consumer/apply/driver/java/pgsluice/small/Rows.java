package pgsluice.small;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The rows of a table in memory, and the application of changes to them, one after another.
 *
 * <p>A change whose row is not there is skipped. Source: apply_handle_insert, apply_handle_update,
 * apply_handle_delete in PostgreSQL's worker.c.
 */
abstract class Rows {
    private final Set<List<Object>> missed = new HashSet<>();
    private boolean isTouched;

    /**
     * Adds a row that the table has; before any change.
     *
     * @throws ParquetRows.NotReadException it has one with this key already
     */
    abstract void add(List<Object> key, Object[] row);

    /** Applies a change. */
    abstract void apply(Change change);

    /** Returns the difference that the changes have made, if that is kept; else nothing. */
    abstract Feed feed();

    /** Returns all rows, but for those that are not rewritten. */
    abstract Iterable<Object[]> all();

    /** Returns the rows that are not rewritten, and have changed or gone. */
    Collection<Base.Row> marked() {
        return List.of();
    }

    /** Returns the rows that the table does not have yet; see {@link #isTouched}. */
    abstract Iterable<Object[]> added();

    /** Whether a row that was added with {@link #add} has changed or gone. */
    final boolean isTouched() {
        return isTouched;
    }

    final void touch() {
        isTouched = true;
    }

    /** Returns the number of keys for which an update or a delete found no row. */
    final int skipped() {
        return missed.size();
    }

    final void miss(List<Object> key) {
        missed.add(key);
    }

    /** Rows that are identified by a key. */
    static final class Keyed extends Rows {
        private final Map<List<Object>, Object[]> byKey = new LinkedHashMap<>();
        private final Set<List<Object>> added = new LinkedHashSet<>();
        private final Map<List<Object>, Base.Row> base;
        private final List<Base.Row> marked = new ArrayList<>();
        private final Map<List<Object>, Object[]> before = new LinkedHashMap<>();
        private final boolean hasFeed;

        /**
         * @param base rows that are not rewritten, of all keys that the changes have; with all values
         *     if there is a feed
         * @param hasFeed whether {@link #feed} is asked for
         */
        Keyed(Map<List<Object>, Base.Row> base, boolean hasFeed) {
            this.base = base;
            this.hasFeed = hasFeed;
        }

        @Override
        void add(List<Object> key, Object[] row) {
            if (byKey.put(key, row) != null || base.containsKey(key)) {
                // Spark's way has to say what becomes of two rows with a key.
                throw new ParquetRows.NotReadException();
            }
        }

        private void look(List<Object> key) {
            if (hasFeed && !before.containsKey(key)) {
                Base.Row stored = base.get(key);
                before.put(key, stored == null ? byKey.get(key) : stored.values());
            }
            if (!added.contains(key) && byKey.containsKey(key)) {
                touch();
            }
        }

        @Override
        void apply(Change change) {
            look(change.key());
            if (change.kind() == Change.Kind.MOVE) {
                look(change.oldKey());
            }
            switch (change.kind()) {
                case PUT -> put(change.key(), change.row());
                case SET -> {
                    if (byKey.computeIfPresent(change.key(), (k, was) -> change.over(was)) == null) {
                        Base.Row was = mark(change.key());
                        if (was == null) {
                            miss(change.key());
                        } else {
                            put(change.key(), change.over(was.values()));
                        }
                    }
                }
                case DELETE -> {
                    added.remove(change.key());
                    if (byKey.remove(change.key()) == null && mark(change.key()) == null) {
                        miss(change.key());
                    }
                }
                case MOVE -> {
                    added.remove(change.oldKey());
                    Object[] was = byKey.remove(change.oldKey());
                    Base.Row stored = was == null ? mark(change.oldKey()) : null;
                    if (was != null || stored != null) {
                        put(change.key(), change.over(was != null ? was : stored.values()));
                    }
                }
                default -> throw new AssertionError(change.kind());
            }
        }

        /** Marks the row that a file which is not rewritten has, if it has one. */
        private Base.Row mark(List<Object> key) {
            Base.Row row = base.remove(key);
            if (row != null) {
                marked.add(row);
            }
            return row;
        }

        private void put(List<Object> key, Object[] row) {
            mark(key);
            byKey.put(key, row);
            added.add(key);
        }

        @Override
        Feed feed() {
            Feed made = new Feed();
            before.forEach((key, row) -> {
                // A row that was looked for and is still where it was has not changed.
                if (!base.containsKey(key)) {
                    made.add(row, byKey.get(key));
                }
            });
            return made;
        }

        @Override
        Collection<Object[]> all() {
            return byKey.values();
        }

        @Override
        Collection<Base.Row> marked() {
            return marked;
        }

        @Override
        Iterable<Object[]> added() {
            return () -> added.stream().map(byKey::get).iterator();
        }
    }

    /** Rows that are identified by their values: several may be equal. */
    static final class Unkeyed extends Rows {
        private final Map<List<Object>, ArrayDeque<Object[]>> byValue = new LinkedHashMap<>();
        private final List<Object[]> added = new ArrayList<>();
        private final Map<List<Object>, Integer> net = new LinkedHashMap<>();
        private final boolean hasFeed;

        /**
         * @param hasFeed whether {@link #feed} is asked for
         */
        Unkeyed(boolean hasFeed) {
            this.hasFeed = hasFeed;
        }

        @Override
        void add(List<Object> key, Object[] row) {
            byValue.computeIfAbsent(key, k -> new ArrayDeque<>(1)).addLast(row);
        }

        @Override
        void apply(Change change) {
            if (change.kind() == Change.Kind.PUT) {
                add(change.key(), change.row());
                added.add(change.row());
                count(change.row(), 1);
                return;
            }
            // Of equal rows it might be one that the table had.
            touch();
            ArrayDeque<Object[]> equal = byValue.get(change.oldKey());
            if (equal == null) {
                return;
            }
            // The oldest one goes.
            count(equal.removeFirst(), -1);
            if (equal.isEmpty()) {
                byValue.remove(change.oldKey());
            }
            if (change.kind() != Change.Kind.DELETE) {
                add(change.key(), change.row());
                count(change.row(), 1);
            }
        }

        /** Counts a row by its values as they are: equal ones may be written differently. */
        private void count(Object[] row, int more) {
            if (hasFeed) {
                net.merge(Arrays.asList(row), more, Integer::sum);
            }
        }

        @Override
        Feed feed() {
            Feed made = new Feed();
            net.forEach((values, more) -> {
                Object[] row = values.toArray();
                for (int left = more; left < 0; left++) {
                    made.add(row, null);
                }
                for (int left = more; left > 0; left--) {
                    made.add(null, row);
                }
            });
            return made;
        }

        @Override
        Iterable<Object[]> all() {
            return () -> byValue.values().stream().flatMap(ArrayDeque::stream).iterator();
        }

        @Override
        Iterable<Object[]> added() {
            return added;
        }
    }
}
