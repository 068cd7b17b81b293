package pgsluice.small;

import org.apache.parquet.io.api.Binary;

/**
 * Canonical form of a value: equal under PostgreSQL's rules, equal as an object.
 *
 * <p>schemas/types.toml says which type has which; the names are those of its keys.
 */
enum Equality {
    /** The value itself. */
    TEXT {
        @Override
        Object of(Object value) {
            if (value instanceof Double number) {
                // 0 and -0 are equal, NaN equals itself: as Double.equals has it but for the sign.
                return number == 0.0 ? 0.0 : number;
            }
            if (value instanceof Float number) {
                return number == 0.0f ? 0.0f : number;
            }
            return value;
        }
    },
    /** The text of a number, without zeros at the end of its fraction. */
    NUMERIC {
        @Override
        Object of(Object value) {
            byte[] text = ((Binary) value).getBytes();
            int end = text.length;
            boolean hasPoint = false;
            for (byte one : text) {
                hasPoint |= one == '.';
            }
            if (!hasPoint) {
                return value;
            }
            while (end > 0 && text[end - 1] == '0') {
                end--;
            }
            if (end > 0 && text[end - 1] == '.') {
                end--;
            }
            return Binary.fromConstantByteArray(text, 0, end);
        }
    },
    /** Text without the spaces at its end. */
    BPCHAR {
        @Override
        Object of(Object value) {
            byte[] text = ((Binary) value).getBytes();
            int end = text.length;
            while (end > 0 && text[end - 1] == ' ') {
                end--;
            }
            return Binary.fromConstantByteArray(text, 0, end);
        }
    };

    /** Returns the canonical form of a value that is not null. */
    abstract Object of(Object value);

    /** Returns the canonical form of some columns of a row; equal to that of an equal row. */
    static java.util.List<Object> of(Object[] row, Column[] columns, int[] places) {
        Object[] made = new Object[places.length];
        for (int at = 0; at < places.length; at++) {
            Object value = row[places[at]];
            made[at] = value == null ? null : columns[places[at]].equality().of(value);
        }
        return java.util.Arrays.asList(made);
    }
}
