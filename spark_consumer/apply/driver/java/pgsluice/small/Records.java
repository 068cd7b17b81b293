package pgsluice.small;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Predicate;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.spark.sql.Row;

/** Records of one topic. What it says of them is JSON, and nothing of it is a row. */
public final class Records {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String topic;
    private final List<WireRecord> all;

    Records(String topic, List<WireRecord> all) {
        this.topic = topic;
        this.all = all;
    }

    /**
     * Returns records that Spark has read.
     *
     * @param rows rows of its Kafka source, with headers
     */
    public static Records of(String topic, List<Row> rows) {
        List<WireRecord> made = new ArrayList<>();
        for (Row row : rows) {
            ConsumerRecord<byte[], byte[]> record = new ConsumerRecord<>(
                    topic,
                    row.getInt(row.fieldIndex("partition")),
                    row.getLong(row.fieldIndex("offset")),
                    row.getAs("key"),
                    row.getAs("value"));
            List<Row> headers = row.getList(row.fieldIndex("headers"));
            for (Row header : headers == null ? List.<Row>of() : headers) {
                record.headers().add(header.getString(0), header.getAs(1));
            }
            made.add(WireRecord.of(record));
        }
        return new Records(topic, made);
    }

    List<WireRecord> all() {
        return all;
    }

    private Records only(Predicate<WireRecord> condition) {
        return new Records(topic, all.stream().filter(condition).toList());
    }

    /** Returns those that have a value. */
    public Records withoutTombstones() {
        return only(record -> !record.isTombstone());
    }

    /** Returns those that are no TRUNCATE. */
    public Records withoutTruncates() {
        return only(record -> !record.isTruncate());
    }

    /**
     * Returns those from an offset on.
     *
     * @param numbers partition and offset, one after another; of other partitions all stay
     */
    public Records beyond(List<Number> numbers) {
        Map<Integer, Long> first = new LinkedHashMap<>();
        for (Iterator<Number> at = numbers.iterator(); at.hasNext(); ) {
            first.put(at.next().intValue(), at.next().longValue());
        }
        return only(record -> record.offset() >= first.getOrDefault(record.partition(), 0L));
    }

    private WireRecord first() {
        return all.stream().filter(one -> one.valueId() != null).findFirst().orElse(null);
    }

    /** Returns the schema of the first value; null if there is none. */
    public Long firstSchema() {
        WireRecord first = first();
        return first == null ? null : Integer.toUnsignedLong(first.valueId());
    }

    /** Returns schema and name of the table that the first value names, as JSON. */
    public String table(String valueSchema) throws IOException {
        byte[] body = first().valueBody();
        // All of it is decoded, so that Avro's limits count.
        GenericRecord envelope = new GenericDatumReader<GenericRecord>(
                        new Schema.Parser().parse(valueSchema))
                .read(null, DecoderFactory.get().binaryDecoder(body, null));
        GenericRecord source = (GenericRecord) envelope.get("source");
        return JSON.createArrayNode()
                .add(source.get("schema").toString())
                .add(source.get("table").toString())
                .toString();
    }

    /** Returns groups of partition and schemas, with what batch_profile.py needs of each. */
    public String survey() {
        Map<List<Object>, List<WireRecord>> groups = new LinkedHashMap<>();
        for (WireRecord record : all) {
            List<Object> kind = new ArrayList<>();
            kind.add(record.partition());
            kind.add(record.keyId());
            kind.add(record.valueId());
            groups.computeIfAbsent(kind, k -> new ArrayList<>()).add(record);
        }
        ArrayNode made = JSON.createArrayNode();
        groups.values().forEach(group -> describe(group, made.addObject()));
        return made.toString();
    }

    private static void describe(Collection<WireRecord> group, ObjectNode into) {
        long bytes = 0;
        long changes = 0;
        long removals = 0;
        long moves = 0;
        long truncates = 0;
        WireRecord last = null;
        WireRecord first = null;
        WireRecord emptying = null;
        WireRecord faulty = null;
        for (WireRecord record : group) {
            bytes += record.bodies();
            first = first == null || record.offset() < first.offset() ? record : first;
            last = last == null || record.offset() > last.offset() ? record : last;
            if (record.fault() != null) {
                faulty = faulty == null || record.offset() < faulty.offset() ? record : faulty;
            } else if (!record.isTombstone()) {
                changes += record.isTruncate() ? 0 : 1;
                removals += record.isRemoval() ? 1 : 0;
                moves += record.isMove() ? 1 : 0;
                truncates += record.isTruncate() ? 1 : 0;
                emptying = record.isTruncate() ? latest(emptying, record) : emptying;
            }
        }
        WireRecord one = Objects.requireNonNull(first);
        into.put("partition", one.partition());
        into.put("key_id", one.keyId());
        into.put("value_id", one.valueId());
        into.put("records", group.size());
        into.put("bytes", bytes);
        into.put("first", one.offset());
        into.put("last", Objects.requireNonNull(last).offset());
        into.put("changes", changes);
        into.put("removals", removals);
        into.put("moves", moves);
        into.put("truncates", truncates);
        into.put("truncate", emptying == null ? null : emptying.offset());
        into.put("body", emptying == null ? null : emptying.valueBody());
        if (faulty != null) {
            into.putObject("fault").put("offset", faulty.offset()).put("fault", faulty.fault());
        }
    }

    private static WireRecord latest(WireRecord one, WireRecord other) {
        return one == null || other.offset() > one.offset() ? other : one;
    }

    /** Returns partition, offset, value's schema and Avro body of each TRUNCATE. */
    public String truncates() {
        ArrayNode made = JSON.createArrayNode();
        for (WireRecord record : all) {
            if (record.isTruncate()) {
                made.addArray()
                        .add(record.partition())
                        .add(record.offset())
                        .add(record.valueId())
                        .add(Base64.getEncoder().encodeToString(record.valueBody()));
            }
        }
        return made.toString();
    }

    /** Returns the changes in the order of their positions, as runs with the same schemas. */
    public String runs() {
        ArrayNode made = JSON.createArrayNode();
        WireRecord before = null;
        int count = 0;
        for (WireRecord record : ordered()) {
            if (before != null && !before.hasSchemasOf(record)) {
                made.addArray().add(before.keyId()).add(before.valueId()).add(count);
                count = 0;
            }
            before = record;
            count++;
        }
        if (before != null) {
            made.addArray().add(before.keyId()).add(before.valueId()).add(count);
        }
        return made.toString();
    }

    /** Returns the changes from one place to another in the order of their positions. */
    public Records slice(int from, int end) {
        return new Records(topic, ordered().subList(from, end));
    }

    private List<WireRecord> ordered() {
        return all.stream()
                .filter(record -> !record.isTombstone() && !record.isTruncate())
                .sorted()
                .toList();
    }

    /** Returns those that are applied to rows, in the order of their positions. */
    List<WireRecord> changes() {
        return ordered().stream().filter(WireRecord::isChange).toList();
    }
}
