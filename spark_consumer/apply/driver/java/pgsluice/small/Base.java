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

    /**
     * @param columns all columns of the table
     * @param keyPlaces which of them are the key, in its order
     * @param mostBytes bytes that the values that are read of a file may have
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
        Map<List<Object>, Row> found = new HashMap<>();
        for (int number : candidates) {
            find(number, keys, whole, found);
        }
        return found;
    }

    private void find(
            int number,
            Set<List<Object>> keys,
            Set<List<Object>> whole,
            Map<List<Object>, Row> found)
            throws IOException {
        StoredFile file = files.get(number);
        RoaringBitmapArray gone = vectors.load(file.deleted());
        Map<Long, Row> wanted = new HashMap<>();
        ParquetRows.read(conf, file.path(), keyColumns, mostBytes, (at, values) -> {
            List<Object> key = Equality.of(values, keyColumns, keyPlaces);
            if (!keys.contains(key) || gone.contains(at)) {
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
        if (!wanted.isEmpty()) {
            ParquetRows.read(conf, file.path(), columns, mostBytes, (at, values) -> {
                Row row = wanted.get(at);
                if (row != null) {
                    row.values = values;
                }
            });
        }
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
            marked.computeIfAbsent(row.file, n -> vectors.load(files.get(n).deleted())).add(row.at);
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
