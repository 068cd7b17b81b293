package pgsluice.small;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.delta.deletionvectors.RoaringBitmapArray;

/** Files of a table that are not rewritten: their rows are found by their keys, and marked. */
final class Base {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** Rows of files whose keys are read in less time than Spark needs to plan a query for them. */
    private static final long MOST_ROWS = 2_000_000;

    private final List<StoredFile> files;
    private final Column[] columns;
    private final Column[] keyColumns;
    private final int[] keyPlaces;
    private final DeletionVectors vectors;
    private final Configuration conf;
    private final long mostBytes;
    private final Map<Integer, RoaringBitmapArray> loaded = new HashMap<>();

    /**
     * @param columns all columns of the table
     * @param keyPlaces which of them are the key, in its order
     * @param mostBytes bytes that the keys of a file may have, and all values of whole rows
     */
    Base(
            List<StoredFile> files,
            Column[] columns,
            int[] keyPlaces,
            DeletionVectors vectors,
            Configuration conf,
            long mostBytes) {
        this.files = files;
        this.columns = columns;
        this.keyPlaces = java.util.stream.IntStream.range(0, keyPlaces.length).toArray();
        keyColumns = java.util.Arrays.stream(keyPlaces)
                .mapToObj(at -> columns[at])
                .toArray(Column[]::new);
        this.vectors = vectors;
        this.conf = conf;
        this.mostBytes = mostBytes;
    }

    /** A row of a file. */
    static final class Row {
        private final int file;
        private final long at;
        private Object[] values;

        private Row(int file, long at) {
            this.file = file;
            this.at = at;
        }

        /** Returns its values, if {@link #find} was to read them; else null. */
        Object[] values() {
            return values;
        }
    }

    /**
     * Finds rows by their keys.
     *
     * @param keys canonical forms of keys
     * @param whole those whose rows are read with all their values
     * @throws ParquetRows.NotReadException too much would have to be read
     */
    Map<List<Object>, Row> find(Set<List<Object>> keys, Set<List<Object>> whole)
            throws IOException {
        List<Integer> candidates = new ArrayList<>();
        long rows = 0;
        for (int number = 0; number < files.size(); number++) {
            if (files.get(number).mayHold(keys, keyColumns)) {
                candidates.add(number);
                rows += files.get(number).rows();
            }
        }
        if (rows > MOST_ROWS) {
            throw new ParquetRows.NotReadException();
        }
        // A key that was read may be a part of its page, which would stay in memory.
        Map<List<Object>, List<Object>> own = new HashMap<>();
        keys.forEach(key -> own.put(key, key));
        Map<List<Object>, Row> found = new HashMap<>();
        long left = mostBytes;
        for (int number : candidates) {
            left -= find(number, own, whole, found, left);
        }
        return found;
    }

    /** Returns how many bytes the values of whole rows have that are kept. */
    private long find(
            int number,
            Map<List<Object>, List<Object>> keys,
            Set<List<Object>> whole,
            Map<List<Object>, Row> found,
            long left)
            throws IOException {
        StoredFile file = files.get(number);
        RoaringBitmapArray gone = loaded.computeIfAbsent(number, n -> vectors.load(file.deleted()));
        Map<Long, Row> wanted = new HashMap<>();
        ParquetRows.read(conf, file.path(), keyColumns, mostBytes, (at, values) -> {
            List<Object> key = keys.get(Equality.of(values, keyColumns, keyPlaces));
            if (key == null || gone.contains(at)) {
                return;
            }
            Row row = new Row(number, at);
            if (found.put(key, row) != null) {
                // Spark's way has to say what becomes of two rows with a key.
                throw new ParquetRows.NotReadException();
            }
            if (whole.contains(key)) {
                wanted.put(at, row);
            }
        });
        if (wanted.isEmpty()) {
            return 0;
        }
        // Equal values, which a dictionary has once, become as many.
        long[] copied = {0};
        ParquetRows.read(conf, file.path(), columns, left, (at, values) -> {
            Row row = wanted.get(at);
            if (row != null) {
                copied[0] += ParquetRows.size(values);
                if (copied[0] > left) {
                    throw new ParquetRows.NotReadException();
                }
                row.values = ParquetRows.copied(values);
            }
        });
        return copied[0];
    }

    /**
     * Marks rows as deleted.
     *
     * @return of each file that has some of them its {@code number}, its {@code deleted} rows, null if
     *     all are, and its {@code statistics}
     */
    ArrayNode mark(Collection<Row> rows) throws IOException {
        Map<Integer, RoaringBitmapArray> marked = new TreeMap<>();
        for (Row row : rows) {
            marked.computeIfAbsent(row.file, loaded::get).add(row.at);
        }
        List<RoaringBitmapArray> kept = new ArrayList<>();
        ArrayNode made = JSON.createArrayNode();
        List<ObjectNode> open = new ArrayList<>();
        marked.forEach((number, vector) -> {
            ObjectNode one = made.addObject().put("number", number);
            one.put("statistics", files.get(number).wideStatistics()).putNull("deleted");
            if (vector.cardinality() < files.get(number).rows()) {
                open.add(one);
                kept.add(vector);
            }
        });
        List<ObjectNode> saved = vectors.save(kept);
        for (int at = 0; at < open.size(); at++) {
            open.get(at).set("deleted", saved.get(at));
        }
        return made;
    }
}
