package pgsluice.small;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * A file of a table.
 *
 * @param path its path, for Hadoop
 * @param statistics as Delta's log has them
 * @param deleted descriptor of its deletion vector, as Delta's log has it; null without one
 */
record StoredFile(String path, ObjectNode statistics, JsonNode deleted) {
    /** Numbers are written as they were read: not all readers know 100.00 as 1E+2. */
    private static final ObjectMapper JSON = new ObjectMapper()
            .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
            .setNodeFactory(JsonNodeFactory.withExactBigDecimals(true));

    static List<StoredFile> of(JsonNode listed) throws JsonProcessingException {
        List<StoredFile> made = new ArrayList<>();
        for (JsonNode one : listed) {
            made.add(new StoredFile(
                    one.get("path").asText(),
                    (ObjectNode) JSON.readTree(one.get("statistics").asText()),
                    one.hasNonNull("deleted") ? one.get("deleted") : null));
        }
        return made;
    }

    /** Returns the number of rows, deleted ones among them. */
    long rows() {
        return statistics.get("numRecords").asLong();
    }

    /** Returns the statistics for the time that some of its rows are deleted. */
    String wideStatistics() {
        return statistics.deepCopy().put("tightBounds", false).toString();
    }

    /**
     * Whether a row may have one of some keys, as far as bounds of whole numbers say.
     *
     * @param columns columns of the key, in its order
     */
    boolean mayHold(Collection<List<Object>> keys, Column[] columns) {
        long[] least = new long[columns.length];
        long[] greatest = new long[columns.length];
        for (int at = 0; at < columns.length; at++) {
            JsonNode low = statistics.path("minValues").path(columns[at].physical());
            JsonNode high = statistics.path("maxValues").path(columns[at].physical());
            boolean isKnown = columns[at].type().isInteger()
                    && low.isIntegralNumber() && high.isIntegralNumber();
            least[at] = isKnown ? low.asLong() : Long.MIN_VALUE;
            greatest[at] = isKnown ? high.asLong() : Long.MAX_VALUE;
        }
        return keys.stream().anyMatch(key -> isWithin(key, columns, least, greatest));
    }

    private static boolean isWithin(
            List<Object> key, Column[] columns, long[] least, long[] greatest) {
        for (int at = 0; at < columns.length; at++) {
            if (columns[at].type().isInteger() && key.get(at) instanceof Number number) {
                long value = number.longValue();
                if (value < least[at] || value > greatest[at]) {
                    return false;
                }
            }
        }
        return true;
    }
}
