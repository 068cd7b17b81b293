package pgsluice.small;

import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/**
 * Decoder of records that have the same two schemas.
 *
 * <p>Prepared once per pair of schemas and set of columns; not thread-safe.
 */
final class Decoder {
    private static final Schema.Type NULL = Schema.Type.NULL;

    private final Column[] columns;
    private final int[] keyPlaces;
    private final boolean hasKey;
    private final GenericDatumReader<GenericRecord> values;
    private final GenericDatumReader<GenericRecord> keys;
    private final int before;
    private final int after;
    private final int unchanged;
    /** By column, its place in the records of rows, and the schema of its values. */
    private final int[] places;
    private final Schema[] types;
    /** By column, its place in the record of keys, and the schema there; -1 if it is not in it. */
    private final int[] inKey;
    private final Schema[] keyTypes;
    private BinaryDecoder reused;

    /**
     * @param keyPlaces which columns are the key, in its order; all of them where there is none
     * @param hasKey whether rows are identified by the key
     * @param keySchema writer schema of records' keys; null if they are not that key, whose values
     *     are those of the row then
     * @param valueSchema writer schema of values: the envelope
     */
    Decoder(Column[] columns, int[] keyPlaces, boolean hasKey, Schema keySchema, Schema valueSchema) {
        this.columns = columns;
        this.keyPlaces = keyPlaces;
        this.hasKey = hasKey;
        Schema needed = needed(valueSchema);
        values = reader(valueSchema, needed);
        keys = keySchema == null ? null : reader(keySchema, keySchema);
        before = needed.getField("before").pos();
        after = needed.getField("after").pos();
        unchanged = needed.getField("unchanged").pos();
        Schema row = notNull(needed.getField("after").schema());
        places = new int[columns.length];
        types = new Schema[columns.length];
        inKey = new int[columns.length];
        keyTypes = new Schema[columns.length];
        for (int at = 0; at < columns.length; at++) {
            Schema.Field field = row.getField(columns[at].field());
            places[at] = field.pos();
            types[at] = notNull(field.schema());
            Schema.Field key = keySchema == null ? null : keySchema.getField(columns[at].field());
            inKey[at] = key == null ? -1 : key.pos();
            keyTypes[at] = key == null ? null : notNull(key.schema());
        }
    }

    /** Whether the schemas' values are those of the columns' types. */
    boolean fits() {
        for (int at = 0; at < columns.length; at++) {
            boolean isIn = keyTypes[at] == null || columns[at].type().fits(keyTypes[at]);
            if (!isIn || !columns[at].type().fits(types[at])) {
                return false;
            }
        }
        return true;
    }

    private static GenericDatumReader<GenericRecord> reader(Schema writer, Schema reader) {
        // Without conversions of logical types: values stay as they are encoded.
        return new GenericDatumReader<>(writer, reader, new GenericData());
    }

    /** Returns a reader's schema of the envelope without the metadata, which decodes faster. */
    private static Schema needed(Schema envelope) {
        List<Schema.Field> kept = new java.util.ArrayList<>();
        for (Schema.Field field : envelope.getFields()) {
            if (Set.of("before", "after", "unchanged").contains(field.name())) {
                kept.add(new Schema.Field(field, field.schema()));
            }
        }
        return Schema.createRecord(
                envelope.getName(), null, envelope.getNamespace(), false, kept);
    }

    private static Schema notNull(Schema schema) {
        if (schema.getType() != Schema.Type.UNION) {
            return schema;
        }
        for (Schema one : schema.getTypes()) {
            if (one.getType() != NULL) {
                return one;
            }
        }
        return schema;
    }

    /** Decodes a record for which {@link WireRecord#isChange} holds. */
    Change decode(WireRecord record) throws IOException {
        GenericRecord envelope = read(values, record.value());
        GenericRecord key = keys == null ? null : read(keys, record.key());
        GenericRecord old = (GenericRecord) envelope.get(before);
        GenericRecord now = (GenericRecord) envelope.get(after);
        boolean isPut = !record.isRemoval();
        Change.Kind kind = switch (record.op()) {
            case "u" -> Change.Kind.SET;
            case "d" -> Change.Kind.DELETE;
            default -> record.isMove() ? Change.Kind.MOVE : Change.Kind.PUT;
        };
        Set<String> unsent = isPut ? Set.of() : unsent(envelope);
        Object[] row = kind == Change.Kind.DELETE ? null : row(now, old, key, unsent);
        boolean[] isSent = null;
        if (hasKey && row != null && !unsent.isEmpty()) {
            isSent = new boolean[columns.length];
            for (int at = 0; at < columns.length; at++) {
                isSent[at] = !unsent.contains(columns[at].field());
            }
        }
        if (hasKey) {
            List<Object> from =
                    kind == Change.Kind.MOVE ? Equality.of(whole(old), columns, keyPlaces) : null;
            return new Change(kind, key == null ? keyOf(now, old) : keyOf(key), from, row, isSent);
        }
        List<Object> to = row == null ? null : Equality.of(row, columns, keyPlaces);
        List<Object> from = isPut ? null : Equality.of(whole(old), columns, keyPlaces);
        return new Change(kind, to, from, row, null);
    }

    private GenericRecord read(GenericDatumReader<GenericRecord> reader, byte[] message)
            throws IOException {
        int prefix = WireRecord.PREFIX;
        reused = DecoderFactory.get()
                .binaryDecoder(message, prefix, message.length - prefix, reused);
        return reader.read(null, reused);
    }

    private Set<String> unsent(GenericRecord envelope) {
        Set<String> names = new HashSet<>();
        if (envelope.get(unchanged) instanceof List<?> listed) {
            for (Object name : listed) {
                names.add(name.toString());
            }
        }
        return names;
    }

    private Object[] row(
            GenericRecord now, GenericRecord old, GenericRecord key, Set<String> unsent) {
        Object[] row = new Object[columns.length];
        for (int at = 0; at < columns.length; at++) {
            boolean isOld = !hasKey && unsent.contains(columns[at].field());
            row[at] = value(isOld ? old : now, at);
            if (row[at] == null && inKey[at] >= 0 && key.get(inKey[at]) != null) {
                row[at] = columns[at].type().ofAvro(key.get(inKey[at]), keyTypes[at]);
            }
        }
        return row;
    }

    private Object[] whole(GenericRecord record) {
        Object[] row = new Object[columns.length];
        for (int at = 0; at < columns.length; at++) {
            row[at] = value(record, at);
        }
        return row;
    }

    private Object value(GenericRecord record, int at) {
        Object datum = record == null ? null : record.get(places[at]);
        return datum == null ? null : columns[at].type().ofAvro(datum, types[at]);
    }

    /** Returns the key of a row: what was not sent of it has not changed. */
    private List<Object> keyOf(GenericRecord now, GenericRecord old) {
        Object[] row = new Object[columns.length];
        for (int at : keyPlaces) {
            Object sent = value(now, at);
            row[at] = sent == null ? value(old, at) : sent;
        }
        return Equality.of(row, columns, keyPlaces);
    }

    private List<Object> keyOf(GenericRecord key) {
        Object[] made = new Object[keyPlaces.length];
        for (int at = 0; at < keyPlaces.length; at++) {
            Column column = columns[keyPlaces[at]];
            Object datum = key.get(inKey[keyPlaces[at]]);
            made[at] = datum == null
                    ? null
                    : column.equality().of(column.type().ofAvro(datum, keyTypes[keyPlaces[at]]));
        }
        return java.util.Arrays.asList(made);
    }
}
