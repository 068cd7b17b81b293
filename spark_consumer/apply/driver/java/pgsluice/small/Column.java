package pgsluice.small;

/**
 * A published column of a table.
 *
 * @param field its Avro field
 * @param physical its name in files
 * @param fieldId its number in files; null if they have none
 * @param type its type
 * @param equality which of its values are equal
 * @param hasStatistics whether a file's statistics include it
 */
record Column(
        String field,
        String physical,
        Integer fieldId,
        ColumnType type,
        Equality equality,
        boolean hasStatistics) {}
