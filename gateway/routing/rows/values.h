/* One value: PostgreSQL's text to Avro, or to the canonical form that a partition follows from.
 *
 * The same bytes as gateway.envelope.values and gateway.envelope.canonical, for the texts that a
 * server prints every day. Every other text, right or wrong, is NOT_MINE: Python reads it, or says
 * what is wrong with it.
 */
#ifndef PGSLUICE_VALUES_H
#define PGSLUICE_VALUES_H

#include <stddef.h>
#include <stdint.h>

enum { FAILED = -1, DONE = 0, NOT_MINE = 1 };
/* FAILED: no memory, or a Python exception is set. What was written is of no use unless DONE. */

typedef struct {
    uint8_t *data;
    size_t size, room;
} Buffer;

int buffer_reserve(Buffer *buffer, size_t more);
int put_bytes(Buffer *buffer, const void *data, size_t size);
int put_long(Buffer *buffer, int64_t value);
void buffer_free(Buffer *buffer);

/* Codes of the ways to read a value, as gateway.routing.compiled names them. */
enum {
    AS_BOOLEAN = 'b',
    AS_INTEGER = 'i',
    AS_FLOAT = 'f',
    AS_DOUBLE = 'd',
    AS_DECIMAL = 'n',
    AS_BYTES = 'x',
    AS_DATE = 'a',
    AS_TIMESTAMP = 't',
    AS_TIMESTAMPTZ = 'z',
    AS_TEXT = 's',
};

/* And of canonical forms, beside AS_TEXT and AS_TIMESTAMPTZ. */
enum { NUMERIC_KEY = 'N', FLOAT_KEY = 'F', BPCHAR_KEY = 'B' };

int encode_value(Buffer *out, int code, int scale, const uint8_t *text, size_t size);
int encode_canonical(Buffer *out, int code, const uint8_t *text, size_t size);
int is_value_code(int code);
int is_canonical_code(int code);
uint32_t crc_of(const uint8_t *data, size_t size);

#endif
