package pgsluice.small;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;

/**
 * A record of a table's topic, with its headers and schema ids taken apart.
 *
 * @param keyId schema of the key; null without a key
 * @param valueId schema of the value; null for a tombstone
 * @param fault what is wrong with it; null if nothing is
 */
record WireRecord(
        int partition,
        long offset,
        String lsn,
        long seq,
        String op,
        String rekey,
        Integer keyId,
        byte[] key,
        Integer valueId,
        byte[] value,
        String fault)
        implements Comparable<WireRecord> {
    /** Bytes before the Avro body: a zero and the schema's id. */
    static final int PREFIX = 5;

    private static final Pattern LSN = Pattern.compile("[0-9A-F]{8}/[0-9A-F]{8}");
    private static final Set<String> OPS = Set.of("c", "u", "d", "t", "r");

    static WireRecord of(ConsumerRecord<byte[], byte[]> record) {
        byte[] key = record.key();
        byte[] value = record.value();
        String lsn = header(record, "commit_lsn");
        String op = header(record, "op");
        String rekey = header(record, "rekey");
        Long seq = number(header(record, "seq"));
        String fault = value == null ? null : fault(key, value, lsn, seq, op, rekey);
        boolean isWhole = fault == null && value != null;
        return new WireRecord(
                record.partition(),
                record.offset(),
                lsn,
                seq == null ? 0 : seq,
                op,
                rekey,
                isWhole && key != null ? ByteBuffer.wrap(key).getInt(1) : null,
                key,
                isWhole ? ByteBuffer.wrap(value).getInt(1) : null,
                value,
                fault);
    }

    private static String fault(
            byte[] key, byte[] value, String lsn, Long seq, String op, String rekey) {
        if (value.length <= PREFIX || value[0] != 0) {
            return "the value is not in the wire format (magic byte 0, schema id, Avro)";
        }
        if (key != null && (key.length < PREFIX || key[0] != 0)) {
            return "the key is not in the wire format (magic byte 0, schema id, Avro)";
        }
        if (lsn == null || !LSN.matcher(lsn).matches()) {
            return "header commit_lsn is missing or is not XXXXXXXX/XXXXXXXX";
        }
        if (seq == null) {
            return "header seq is missing or is not a number";
        }
        if (op == null || !OPS.contains(op)) {
            return "header op is missing or is not one of c, u, d, t, r";
        }
        if (rekey != null && !rekey.equals("old") && !rekey.equals("new")) {
            return "header rekey is neither old nor new";
        }
        return null;
    }

    private static String header(ConsumerRecord<byte[], byte[]> record, String name) {
        for (Header header : record.headers()) {
            if (header.key().equals(name)) {
                byte[] text = header.value();
                return text == null ? null : new String(text, StandardCharsets.UTF_8);
            }
        }
        return null;
    }

    private static Long number(String text) {
        try {
            return text == null ? null : Long.valueOf(text);
        } catch (NumberFormatException error) {
            return null;
        }
    }

    /** Bytes of the Avro bodies. */
    long bodies() {
        return Math.max(0, value == null ? 0 : value.length - PREFIX)
                + Math.max(0, key == null ? 0 : key.length - PREFIX);
    }

    byte[] valueBody() {
        return java.util.Arrays.copyOfRange(value, PREFIX, value.length);
    }

    boolean hasSchemasOf(WireRecord other) {
        return java.util.Objects.equals(keyId, other.keyId)
                && java.util.Objects.equals(valueId, other.valueId);
    }

    boolean isTombstone() {
        return value == null;
    }

    boolean isTruncate() {
        return "t".equals(op);
    }

    /** Whether it is applied to rows: the old half of a key change is not, the new one has all. */
    boolean isChange() {
        return !isTombstone() && !isTruncate() && !("d".equals(op) && "old".equals(rekey));
    }

    boolean isMove() {
        return "c".equals(op) && "new".equals(rekey);
    }

    /** Whether it needs a row that is there. */
    boolean isRemoval() {
        return "u".equals(op) || "d".equals(op) || isMove();
    }

    @Override
    public int compareTo(WireRecord other) {
        int compared = lsn.compareTo(other.lsn);
        if (compared == 0) {
            compared = Long.compare(seq, other.seq);
        }
        return compared == 0 ? Long.compare(offset, other.offset) : compared;
    }
}
