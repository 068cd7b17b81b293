package pgsluice.small;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.spark.sql.delta.deletionvectors.RoaringBitmapArray;

/** Columns and key of a table, prepared for batches; not thread-safe. */
public final class SmallTable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int MOST_DECODERS = 1_000;

    private final Column[] columns;
    private final long mostBytes;
    private final int[] keyPlaces;
    private final boolean hasKey;
    private final Map<List<Integer>, Decoder> decoders = new HashMap<>();

    /**
     * @param spec as JSON: {@code columns} of field, physical, id, type, equality, statistics;
     *     and {@code key}, the fields of the key, or null
     * @param mostBytes bytes that the values may have that are read of the tail, of the keys of a
     *     file, and of all other rows
     */
    public SmallTable(String spec, long mostBytes) throws IOException {
        this.mostBytes = mostBytes;
        JsonNode root = JSON.readTree(spec);
        Map<String, Integer> places = new HashMap<>();
        List<Column> listed = new ArrayList<>();
        for (JsonNode one : root.get("columns")) {
            places.put(one.get("field").asText(), listed.size());
            listed.add(new Column(
                    one.get("field").asText(),
                    one.get("physical").asText(),
                    one.hasNonNull("id") ? one.get("id").asInt() : null,
                    ColumnType.of(one.get("type").asText()),
                    Equality.valueOf(one.get("equality").asText().toUpperCase(Locale.ROOT)),
                    one.get("statistics").asBoolean()));
        }
        columns = listed.toArray(new Column[0]);
        hasKey = root.hasNonNull("key");
        if (hasKey) {
            keyPlaces = new int[root.get("key").size()];
            for (int at = 0; at < keyPlaces.length; at++) {
                keyPlaces[at] = places.get(root.get("key").get(at).asText());
            }
        } else {
            keyPlaces = java.util.stream.IntStream.range(0, columns.length).toArray();
        }
    }

    /**
     * Prepares a pair of schemas.
     *
     * @param keyId schema of records' keys; -1 without one
     * @param keySchema the same; null if the key of rows is not the records', see {@link Decoder}
     * @return false if their values are not those of the columns' types as they are
     */
    public boolean prepare(int keyId, String keySchema, int valueId, String valueSchema) {
        Schema key = keySchema == null ? null : new Schema.Parser().parse(keySchema);
        Schema value = new Schema.Parser().parse(valueSchema);
        Decoder made = new Decoder(columns, keyPlaces, hasKey, key, value);
        if (!made.fits()) {
            return false;
        }
        if (decoders.size() >= MOST_DECODERS) {
            decoders.clear();
        }
        decoders.put(List.of(keyId, valueId), made);
        return true;
    }

    /**
     * Applies changes to the rows of files, and writes rows into another file.
     *
     * <p>Of the table's files those of the {@code tail} are rewritten as a whole, and rows of the
     * {@code base} are marked as deleted.
     *
     * @param stored as JSON: {@code table}, the folder; {@code tail} and {@code base}, each a list of
     *     path, statistics and deleted, see {@link StoredFile}; {@code canMark}, whether rows may be
     *     marked
     * @param target the new file; none is written without a row for it
     * @param mayAdd whether the new file may stand beside the tail, if its rows stay as they are
     * @param feed the file of the change data feed; null without one
     * @return as JSON: {@code isBeside}, {@code skipped}, {@code rows} and {@code size} of the file,
     *     its {@code stats} in Delta's form, and {@code marked}, see {@link Base#mark}; with a feed
     *     whose rows are not just those of the file, {@code feedRows} and {@code feedSize}; or
     *     {@code partition} and {@code damaged}, the offset of the first record that is not what its
     *     schemas say; null if the files are to be read in another way, because their rows take too
     *     much memory, for example
     */
    public String apply(
            Records records,
            String stored,
            String target,
            boolean mayAdd,
            String feed,
            String codec,
            Map<String, String> metadata,
            Configuration conf)
            throws IOException {
        List<Change> changes = new ArrayList<>();
        for (WireRecord record : records.changes()) {
            int keyId = record.keyId() == null ? -1 : record.keyId();
            Decoder decoder = decoders.get(List.of(keyId, record.valueId()));
            try {
                changes.add(decoder.decode(record));
            } catch (IOException
                    | AvroRuntimeException
                    | ArithmeticException
                    | IndexOutOfBoundsException
                    | NumberFormatException
                    | UnsupportedOperationException error) {
                // Its text may have a value of the row. The last kind is that of Avro's limits.
                return JSON.createObjectNode()
                        .put("partition", record.partition())
                        .put("damaged", record.offset())
                        .toString();
            }
        }
        JsonNode files = JSON.readTree(stored);
        boolean canMark = files.get("canMark").asBoolean();
        DeletionVectors vectors = new DeletionVectors(files.get("table").asText(), conf);
        List<StoredFile> tail = StoredFile.of(files.get("tail"));
        List<StoredFile> others = StoredFile.of(files.get("base"));
        boolean hasRemovals = changes.stream().anyMatch(one -> one.kind() != Change.Kind.PUT);
        if (!others.isEmpty() && !canMark && hasRemovals) {
            return null;
        }
        Base base = new Base(others, columns, keyPlaces, vectors, conf, mostBytes);
        Rows rows;
        try {
            boolean hasFeed = feed != null;
            rows = hasKey
                    ? new Rows.Keyed(found(base, changes, hasFeed), hasFeed)
                    : new Rows.Unkeyed(hasFeed);
            long left = mostBytes;
            for (StoredFile file : tail) {
                RoaringBitmapArray gone = vectors.load(file.deleted());
                left -= ParquetRows.read(conf, file.path(), columns, left, (at, row) -> {
                    if (!gone.contains(at)) {
                        rows.add(Equality.of(row, columns, keyPlaces), row);
                    }
                });
            }
        } catch (ParquetRows.NotReadException error) {
            return null;
        }
        changes.forEach(rows::apply);
        if (!canMark && !rows.marked().isEmpty()) {
            return null;
        }
        Statistics statistics = new Statistics(columns);
        boolean isBeside = mayAdd && !rows.isTouched();
        Iterable<Object[]> written = isBeside ? rows.added() : rows.all();
        written.forEach(statistics::add);
        ObjectNode made = JSON.createObjectNode();
        made.put("isBeside", isBeside);
        made.put("rows", statistics.rows());
        made.put("skipped", rows.skipped());
        CompressionCodecName name = CompressionCodecName.fromConf(codec);
        if (feed != null && !(isBeside && rows.marked().isEmpty())) {
            Feed difference = rows.feed();
            made.put("feedRows", difference.size());
            if (!difference.isEmpty()) {
                made.put("feedSize", difference.write(conf, feed, columns, name, metadata));
            }
        }
        if (statistics.rows() > 0) {
            made.put("size",
                    ParquetRows.write(conf, target, columns, name, metadata, written));
            made.put("stats", statistics.json(JSON));
        }
        made.set("marked", base.mark(rows.marked()));
        return made.toString();
    }

    /** Returns the rows of files that the changes touch. */
    private static Map<List<Object>, Base.Row> found(
            Base base, List<Change> changes, boolean hasFeed) throws IOException {
        Set<List<Object>> keys = new HashSet<>();
        Set<List<Object>> whole = new HashSet<>();
        for (Change change : changes) {
            boolean isMove = change.kind() == Change.Kind.MOVE;
            List<Object> from = isMove ? change.oldKey() : change.key();
            keys.add(change.key());
            keys.add(from);
            if (change.isSent() != null) {
                whole.add(from);
            }
        }
        return base.find(keys, hasFeed ? keys : whole);
    }
}
