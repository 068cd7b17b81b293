package pgsluice.small;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * Statistics of a file's rows: the number of nulls by column, bounds of whole numbers.
 *
 * <p>Which columns they include, the table's properties say.
 */
final class Statistics {
    private final Column[] columns;
    private final long[] nulls;
    private final long[] least;
    private final long[] greatest;
    private long rows;

    Statistics(Column[] columns) {
        this.columns = columns;
        nulls = new long[columns.length];
        least = new long[columns.length];
        greatest = new long[columns.length];
        java.util.Arrays.fill(least, Long.MAX_VALUE);
        java.util.Arrays.fill(greatest, Long.MIN_VALUE);
    }

    long rows() {
        return rows;
    }

    void add(Object[] row) {
        rows++;
        for (int at = 0; at < row.length; at++) {
            if (row[at] == null) {
                nulls[at]++;
            } else if (columns[at].type().isInteger()) {
                long value = ((Number) row[at]).longValue();
                least[at] = Math.min(least[at], value);
                greatest[at] = Math.max(greatest[at], value);
            }
        }
    }

    /** Returns them as Delta's log has them. Source: Delta's protocol, "Per-file Statistics". */
    String json(ObjectMapper mapper) {
        ObjectNode made = mapper.createObjectNode().put("numRecords", rows);
        if (java.util.Arrays.stream(columns).noneMatch(Column::hasStatistics)) {
            return made.toString();
        }
        ObjectNode low = made.putObject("minValues");
        ObjectNode high = made.putObject("maxValues");
        ObjectNode none = made.putObject("nullCount");
        for (int at = 0; at < columns.length; at++) {
            if (!columns[at].hasStatistics()) {
                continue;
            }
            String name = columns[at].physical();
            none.put(name, nulls[at]);
            if (columns[at].type().isInteger() && nulls[at] < rows) {
                low.put(name, least[at]);
                high.put(name, greatest[at]);
            }
        }
        return made.toString();
    }
}
