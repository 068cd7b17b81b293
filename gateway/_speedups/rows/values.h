/* One value: PostgreSQL's text to Avro, or to the canonical form that a partition follows from.
 *
 * The same bytes as gateway.envelope.encoding.conversions and gateway.envelope.canonical, for the
 * texts that are read here.
 */
#ifndef PGSLUICE_VALUES_H
#define PGSLUICE_VALUES_H

#include "texts.h"

typedef struct {
    uint8_t *data;
    size_t size, room;
} Buffer;

int buffer_reserve(Buffer *buffer, size_t more);
int put_bytes(Buffer *buffer, const void *data, size_t size);
int put_long(Buffer *buffer, int64_t value);
void buffer_free(Buffer *buffer);

/* Codes of conversions, beside those of gateway/_speedups/codes.py and texts.h. */
enum { AS_ZONED = 'Z', AS_HEX = 'X' };

/* Codes of canonical forms, beside AS_TEXT, AS_BPCHAR and AS_TIMESTAMPTZ. */
enum { NUMERIC_KEY = 'N', FLOAT_KEY = 'F' };

typedef struct {
    const char *name;
    int code;
} Named;

extern const Named conversions[], key_forms[];

int encode_array(Buffer *out, int code, int scale, const uint8_t *text, size_t size);
int encode_range(Buffer *out, int code, int scale, const uint8_t *text, size_t size);
int encode_value(Buffer *out, int code, int scale, const uint8_t *text, size_t size);
int encode_canonical(Buffer *out, int code, const uint8_t *text, size_t size);
int is_value_code(int code);
int is_canonical_code(int code);
uint32_t crc_of(const uint8_t *data, size_t size);

#endif
