package pgsluice.small;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Locale;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.util.Utf8;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.io.api.RecordConsumer;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.TimeUnit;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;
import org.apache.parquet.schema.Type;
import org.apache.parquet.schema.Type.Repetition;
import org.apache.parquet.schema.Types;

/**
 * Type of a column: how its values are kept in memory, and written into files as Spark writes them.
 *
 * <p>A value in memory is a Boolean, Integer, Long, Float, Double or Binary, as the file has it, so
 * that rows which stay are not converted. Source: Spark's ParquetWriteSupport.
 *
 * @param kind the type without its parameters
 * @param precision digits of a decimal; 0 for other types
 * @param scale digits of a decimal after the point
 */
record ColumnType(Kind kind, int precision, int scale) {
    enum Kind {
        BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ
    }

    private static final int INT_DIGITS = 9;
    private static final int LONG_DIGITS = 18;
    private static final long MICROS = 1_000_000;

    /** Parses a type as Spark's {@code simpleString} writes it: {@code decimal(10,2)}. */
    static ColumnType of(String text) {
        int open = text.indexOf('(');
        if (open < 0) {
            return new ColumnType(Kind.valueOf(text.toUpperCase(Locale.ROOT)), 0, 0);
        }
        String[] digits = text.substring(open + 1, text.length() - 1).split(",");
        return new ColumnType(
                Kind.DECIMAL, Integer.parseInt(digits[0].trim()), Integer.parseInt(digits[1].trim()));
    }

    /** Returns the column of a file. */
    PrimitiveType inFile(String name, Integer fieldId) {
        Types.PrimitiveBuilder<PrimitiveType> made = Types.primitive(stored(), Repetition.OPTIONAL);
        if (stored() == PrimitiveTypeName.FIXED_LEN_BYTE_ARRAY) {
            made = made.length(bytesOf(precision));
        }
        LogicalTypeAnnotation annotation = annotation();
        if (annotation != null) {
            made = made.as(annotation);
        }
        return (fieldId == null ? made : made.id(fieldId)).named(name);
    }

    private PrimitiveTypeName stored() {
        return switch (kind) {
            case BOOLEAN -> PrimitiveTypeName.BOOLEAN;
            case INT, DATE -> PrimitiveTypeName.INT32;
            case BIGINT, TIMESTAMP, TIMESTAMP_NTZ -> PrimitiveTypeName.INT64;
            case FLOAT -> PrimitiveTypeName.FLOAT;
            case DOUBLE -> PrimitiveTypeName.DOUBLE;
            case STRING, BINARY -> PrimitiveTypeName.BINARY;
            case DECIMAL -> precision <= INT_DIGITS
                    ? PrimitiveTypeName.INT32
                    : precision <= LONG_DIGITS
                            ? PrimitiveTypeName.INT64
                            : PrimitiveTypeName.FIXED_LEN_BYTE_ARRAY;
        };
    }

    private LogicalTypeAnnotation annotation() {
        return switch (kind) {
            case STRING -> LogicalTypeAnnotation.stringType();
            case DATE -> LogicalTypeAnnotation.dateType();
            case TIMESTAMP -> LogicalTypeAnnotation.timestampType(true, TimeUnit.MICROS);
            case TIMESTAMP_NTZ -> LogicalTypeAnnotation.timestampType(false, TimeUnit.MICROS);
            case DECIMAL -> LogicalTypeAnnotation.decimalType(scale, precision);
            default -> null;
        };
    }

    /** Bytes of the largest number with a number of digits. */
    private static int bytesOf(int digits) {
        return BigInteger.TEN.pow(digits).subtract(BigInteger.ONE).bitLength() / 8 + 1;
    }

    /** Whether {@link #ofAvro} knows the values of a schema. */
    boolean fits(Schema schema) {
        LogicalType noted = schema.getLogicalType();
        Schema.Type type = schema.getType();
        return switch (kind) {
            case BOOLEAN -> type == Schema.Type.BOOLEAN;
            case INT -> type == Schema.Type.INT && noted == null;
            case BIGINT -> noted == null && (type == Schema.Type.INT || type == Schema.Type.LONG);
            case FLOAT -> type == Schema.Type.FLOAT;
            case DOUBLE -> type == Schema.Type.FLOAT || type == Schema.Type.DOUBLE;
            case DECIMAL -> type == Schema.Type.BYTES && noted instanceof LogicalTypes.Decimal;
            case STRING -> type == Schema.Type.STRING || noted instanceof LogicalTypes.TimeMicros;
            case BINARY -> type == Schema.Type.BYTES && noted == null;
            case DATE -> noted instanceof LogicalTypes.Date;
            case TIMESTAMP -> noted instanceof LogicalTypes.TimestampMicros;
            case TIMESTAMP_NTZ -> noted instanceof LogicalTypes.LocalTimestampMicros;
        };
    }

    /**
     * Converts a decoded Avro value, without logical types, of a type that fits this one.
     *
     * @param schema the value's schema, which is no union
     */
    Object ofAvro(Object datum, Schema schema) {
        return switch (kind) {
            case BIGINT -> ((Number) datum).longValue();
            case DOUBLE -> ((Number) datum).doubleValue();
            case STRING -> text(datum);
            case BINARY -> Binary.fromConstantByteArray(bytes((ByteBuffer) datum));
            case DECIMAL -> ofUnscaled(
                    new BigInteger(bytes((ByteBuffer) datum)),
                    ((LogicalTypes.Decimal) schema.getLogicalType()).getScale());
            default -> datum;
        };
    }

    private static Binary text(Object datum) {
        if (datum instanceof Long usecs) {
            return Binary.fromString(timeOfDay(usecs));
        }
        return datum instanceof Utf8 text
                ? Binary.fromConstantByteArray(Arrays.copyOf(text.getBytes(), text.getByteLength()))
                : Binary.fromString(datum.toString());
    }

    /** Prints microseconds since midnight as PostgreSQL does. */
    private static String timeOfDay(long usecs) {
        long seconds = usecs / MICROS;
        String text = String.format(
                Locale.ROOT,
                "%02d:%02d:%02d.%06d",
                seconds / 3600,
                seconds / 60 % 60,
                seconds % 60,
                usecs % MICROS);
        int end = text.length();
        while (text.charAt(end - 1) == '0') {
            end--;
        }
        return usecs % MICROS == 0 ? text.substring(0, 8) : text.substring(0, end);
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] copied = new byte[buffer.remaining()];
        buffer.duplicate().get(copied);
        return copied;
    }

    /** Whether {@link #ofFile} knows the values of a file's column. */
    boolean reads(Type column) {
        if (!column.isPrimitive() || column.isRepetition(Repetition.REPEATED)) {
            return false;
        }
        PrimitiveTypeName found = column.asPrimitiveType().getPrimitiveTypeName();
        LogicalTypeAnnotation noted = column.getLogicalTypeAnnotation();
        return switch (kind) {
            case BIGINT -> isWhole(noted)
                    && (found == PrimitiveTypeName.INT32 || found == PrimitiveTypeName.INT64);
            case INT -> isWhole(noted) && found == PrimitiveTypeName.INT32;
            case DOUBLE -> found == PrimitiveTypeName.FLOAT || found == PrimitiveTypeName.DOUBLE;
            case DECIMAL -> noted instanceof DecimalLogicalTypeAnnotation decimal
                    && decimal.getScale() <= scale;
            case BOOLEAN, FLOAT -> found == stored();
            case STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ ->
                    found == stored() && java.util.Objects.equals(noted, annotation());
        };
    }

    private static boolean isWhole(LogicalTypeAnnotation noted) {
        return noted == null
                || noted instanceof LogicalTypeAnnotation.IntLogicalTypeAnnotation number
                        && number.isSigned();
    }

    /** Converts a value of a file whose column may be of a narrower type than the table's is now. */
    Object ofFile(Object value, PrimitiveType column) {
        if (kind == Kind.BIGINT && value instanceof Integer narrow) {
            return narrow.longValue();
        }
        if (kind == Kind.DOUBLE && value instanceof Float narrow) {
            return narrow.doubleValue();
        }
        if (kind != Kind.DECIMAL) {
            return value;
        }
        int was = ((DecimalLogicalTypeAnnotation) column.getLogicalTypeAnnotation()).getScale();
        if (was == scale && column.getPrimitiveTypeName() == stored()
                && (stored() != PrimitiveTypeName.FIXED_LEN_BYTE_ARRAY
                        || column.getTypeLength() == bytesOf(precision))) {
            return value;
        }
        BigInteger unscaled = value instanceof Binary binary
                ? new BigInteger(binary.getBytes())
                : BigInteger.valueOf(((Number) value).longValue());
        return ofUnscaled(unscaled, was);
    }

    private Object ofUnscaled(BigInteger unscaled, int was) {
        BigInteger number = was == scale
                ? unscaled
                : new BigDecimal(unscaled, was).setScale(scale).unscaledValue();
        if (number.abs().compareTo(BigInteger.TEN.pow(precision)) >= 0) {
            throw new ArithmeticException("a number has more than " + precision + " digits");
        }
        if (precision <= INT_DIGITS) {
            return number.intValueExact();
        }
        if (precision <= LONG_DIGITS) {
            return number.longValueExact();
        }
        byte[] digits = number.toByteArray();
        byte[] padded = new byte[bytesOf(precision)];
        Arrays.fill(padded, (byte) (number.signum() < 0 ? -1 : 0));
        System.arraycopy(digits, 0, padded, padded.length - digits.length, digits.length);
        return Binary.fromConstantByteArray(padded);
    }

    /** Writes a value, which is not null. */
    void write(Object value, RecordConsumer into) {
        switch (stored()) {
            case BOOLEAN -> into.addBoolean((Boolean) value);
            case INT32 -> into.addInteger((Integer) value);
            case INT64 -> into.addLong((Long) value);
            case FLOAT -> into.addFloat((Float) value);
            case DOUBLE -> into.addDouble((Double) value);
            default -> into.addBinary((Binary) value);
        }
    }

    /** Whether old files of Spark have the values by the Julian calendar. */
    boolean isOfCalendar() {
        return kind == Kind.DATE || kind == Kind.TIMESTAMP;
    }

    /** Whether the values are whole numbers, whose bounds Delta's statistics can have as they are. */
    boolean isInteger() {
        return kind == Kind.INT || kind == Kind.BIGINT;
    }
}
