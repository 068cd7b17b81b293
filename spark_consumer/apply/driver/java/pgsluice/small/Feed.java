package pgsluice.small;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.api.Binary;

/**
 * Rows of a table's change data feed.
 *
 * <p>Source: Delta's protocol, "Add CDC File": the columns of the table, and the kind of the change.
 */
final class Feed {
    private static final String KIND = "_change_type";
    private static final Binary INSERT = Binary.fromString("insert");
    private static final Binary DELETE = Binary.fromString("delete");
    private static final Binary BEFORE = Binary.fromString("update_preimage");
    private static final Binary AFTER = Binary.fromString("update_postimage");

    private final List<Object[]> rows = new ArrayList<>();

    /** Adds what has become of one row; of null there is none. */
    void add(Object[] before, Object[] after) {
        if (before == null && after == null || Arrays.equals(before, after)) {
            return;
        }
        if (before != null) {
            rows.add(with(before, after == null ? DELETE : BEFORE));
        }
        if (after != null) {
            rows.add(with(after, before == null ? INSERT : AFTER));
        }
    }

    boolean isEmpty() {
        return rows.isEmpty();
    }

    int size() {
        return rows.size();
    }

    /** Writes the rows into a new file; returns its size in bytes. */
    long write(
            Configuration conf,
            String file,
            Column[] columns,
            CompressionCodecName codec,
            Map<String, String> metadata)
            throws IOException {
        Column[] all = Arrays.copyOf(columns, columns.length + 1);
        ColumnType text = ColumnType.of("string");
        all[columns.length] = new Column(KIND, KIND, null, text, Equality.TEXT, false);
        return ParquetRows.write(conf, file, all, codec, metadata, rows);
    }

    private static Object[] with(Object[] row, Binary kind) {
        Object[] made = Arrays.copyOf(row, row.length + 1);
        made[row.length] = kind;
        return made;
    }
}
