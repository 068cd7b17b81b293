package pgsluice.markers;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.avro.AvroTypeException;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.SchemaCompatibility.SchemaCompatibilityType;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.spark.sql.Row;

/** Records of a marker topic, decoded in the driver; see markers.py. */
public final class Markers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PREFIX = 5;
    private static final String TIME = "commit_time";
    private static final Set<String> READ = Set.of("PROGRESS", "COPY", "CLAIM");

    private record Raw(long offset, byte[] value) {
        boolean isWhole() {
            return value != null && value.length > PREFIX && value[0] == 0;
        }

        int schema() {
            return ByteBuffer.wrap(value).getInt(1);
        }
    }

    private final List<Raw> all = new ArrayList<>();
    private final Map<Integer, GenericDatumReader<GenericRecord>> readers = new HashMap<>();
    private final Schema needed;

    /**
     * @param rows rows of offset and value
     * @param needed schema with the fields that are read: what a marker's has to fit
     */
    public Markers(List<Row> rows, String needed) {
        for (Row row : rows) {
            all.add(new Raw(row.getLong(0), row.getAs(1)));
        }
        all.sort(Comparator.comparingLong(Raw::offset));
        this.needed = new Schema.Parser().parse(needed);
    }

    /** Returns each schema's id with the offset of its first record, in the order of these. */
    public String schemas() {
        Map<Integer, Long> first = new LinkedHashMap<>();
        for (Raw one : all) {
            if (one.isWhole()) {
                first.putIfAbsent(one.schema(), one.offset());
            }
        }
        ArrayNode made = JSON.createArrayNode();
        first.forEach(
                (id, offset) -> made.addArray().add(Integer.toUnsignedLong(id)).add(offset));
        return made.toString();
    }

    /** Prepares for records of a schema; false if it is none, or not that of a marker. */
    public boolean prepare(long id, String text) {
        Schema writer;
        try {
            writer = new Schema.Parser().parse(text);
        } catch (RuntimeException error) {
            return false;
        }
        boolean isRead = SchemaCompatibility.checkReaderWriterCompatibility(needed, writer).getType()
                == SchemaCompatibilityType.COMPATIBLE;
        if (!isRead || !hasMicroseconds(writer.getField(TIME).schema())) {
            return false;
        }
        // All that is in a record is decoded, so that Avro's limits count; what is skipped has none.
        readers.put((int) id, new GenericDatumReader<>(writer, writer, new GenericData()));
        return true;
    }

    private static boolean hasMicroseconds(Schema time) {
        List<Schema> types = time.isUnion() ? time.getTypes() : List.of(time);
        return types.stream()
                .filter(one -> one.getType() == Schema.Type.LONG)
                .allMatch(one -> "timestamp-micros".equals(one.getProp("logicalType")));
    }

    /**
     * Returns the markers before an offset of the kinds that are read; of a record that cannot be
     * decoded the offset alone.
     *
     * <p>All schemas that occur before it must be prepared.
     */
    public String decoded(long end) {
        ArrayNode made = JSON.createArrayNode();
        for (Raw one : all) {
            ObjectNode found = one.offset() < end ? decoded(one) : null;
            if (found != null) {
                made.add(found);
            }
        }
        return made.toString();
    }

    private ObjectNode decoded(Raw one) {
        if (one.isWhole()) {
            try {
                GenericRecord marker = read(one);
                boolean isRead = READ.contains(marker.get("kind").toString());
                return isRead ? describe(marker).put("offset", one.offset()) : null;
            } catch (IOException | RuntimeException error) {
                // Not what its schema says.
            }
        }
        return JSON.createObjectNode().put("offset", one.offset());
    }

    private GenericRecord read(Raw one) throws IOException {
        int length = one.value().length - PREFIX;
        var decoder = DecoderFactory.get().binaryDecoder(one.value(), PREFIX, length, null);
        return readers.get(one.schema()).read(null, decoder);
    }

    private static ObjectNode describe(GenericRecord marker) {
        ObjectNode made = JSON.createObjectNode();
        made.put("kind", marker.get("kind").toString());
        made.put("end_lsn", ((Number) marker.get("end_lsn")).longValue());
        if (marker.get(TIME) instanceof Number time) {
            made.put(TIME, time.longValue());
        }
        ArrayNode offsets = made.putArray("offsets");
        for (Object range : (List<?>) marker.get("offsets")) {
            GenericRecord one = (GenericRecord) range;
            ObjectNode into = offsets.addObject().put("topic", text(one, "topic"));
            for (Schema.Field field : one.getSchema().getFields()) {
                if (one.get(field.pos()) instanceof Number number) {
                    into.put(field.name(), number.longValue());
                }
            }
        }
        for (String name : List.of("copy", "writer", "taken_from")) {
            if (marker.hasField(name) && marker.get(name) instanceof GenericRecord part) {
                ObjectNode into = made.putObject(name);
                for (Schema.Field field : part.getSchema().getFields()) {
                    into.put(field.name(), text(part, field.name()));
                }
            }
        }
        return made;
    }

    private static String text(GenericRecord record, String field) {
        Object found = record.get(field);
        if (found instanceof ByteBuffer) {
            throw new AvroTypeException("bytes are no text");
        }
        return found == null ? null : found.toString();
    }
}
