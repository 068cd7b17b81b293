#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "values.h"

void buffer_free(Buffer *buffer)
{
    PyMem_Free(buffer->data);
    buffer->data = NULL;
    buffer->size = buffer->room = 0;
}

int buffer_reserve(Buffer *buffer, size_t more)
{
    size_t room, wanted;
    uint8_t *data;

    if (more <= buffer->room - buffer->size)
        return DONE;
    if (more > (size_t)PY_SSIZE_T_MAX / 4 || buffer->size > (size_t)PY_SSIZE_T_MAX / 4) {
        PyErr_NoMemory();
        return FAILED;
    }
    wanted = buffer->size + more;
    room = buffer->room < 1024 ? 1024 : buffer->room * 2;
    if (room < wanted)
        room = wanted;
    data = PyMem_Realloc(buffer->data, room);
    if (data == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    buffer->data = data;
    buffer->room = room;
    return DONE;
}

int put_bytes(Buffer *buffer, const void *data, size_t size)
{
    if (buffer_reserve(buffer, size) != DONE)
        return FAILED;
    if (size > 0)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    return DONE;
}

/* Avro's int and long: zigzag, then seven bits a byte, the lowest first. */
int put_long(Buffer *buffer, int64_t value)
{
    uint64_t n = ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
    uint8_t *to;

    if (buffer_reserve(buffer, 10) != DONE)
        return FAILED;
    to = buffer->data + buffer->size;
    while (n >= 0x80) {
        *to++ = (uint8_t)(n | 0x80);
        n >>= 7;
    }
    *to++ = (uint8_t)n;
    buffer->size = (size_t)(to - buffer->data);
    return DONE;
}

static int put_sized(Buffer *buffer, const void *data, size_t size)
{
    if (put_long(buffer, (int64_t)size) != DONE)
        return FAILED;
    return put_bytes(buffer, data, size);
}

/* numeric(p, s) prints exactly s digits after its point. */
static int put_decimal(Buffer *out, int scale, const uint8_t *text, size_t size)
{
    size_t at = size > 0 && text[0] == '-', count = 0, bytes = 1;
    size_t point = scale > 0 ? (size_t)scale + 1 : 0; /* from the end */
    unsigned __int128 value = 0, left;
    __int128 number;
    uint8_t big[17];

    if (size < at + point + 1)
        return NOT_MINE;
    for (size_t i = at; i < size; i++) {
        int d;
        if (point > 0 && i == size - point) {
            if (text[i] != '.')
                return NOT_MINE;
            continue;
        }
        d = digit(text[i]);
        if (d < 0 || ++count > 37) /* 10**37 fits into 127 bits with room to spare */
            return NOT_MINE;
        value = value * 10 + (unsigned)d;
    }
    number = at ? -(__int128)value : (__int128)value;
    /* The shortest big-endian two's complement form. */
    left = number < 0 ? (unsigned __int128)~number : (unsigned __int128)number;
    while (left >= 0x80) {
        left >>= 8;
        bytes++;
    }
    for (size_t i = 0; i < bytes; i++)
        big[bytes - 1 - i] = (uint8_t)((unsigned __int128)number >> (8 * i));
    return put_sized(out, big, bytes);
}

static int put_float(Buffer *out, int code, const uint8_t *text, size_t size)
{
    uint8_t little[8];
    size_t width = code == AS_FLOAT ? 4 : 8;
    uint64_t bits;
    double value;
    int got = code == AS_FLOAT ? read_float(text, size, &value) : read_double(text, size, &value);

    if (got != DONE)
        return got;
    if (code == AS_FLOAT) {
        float narrow = (float)value;
        uint32_t narrow_bits;
        memcpy(&narrow_bits, &narrow, 4);
        bits = narrow_bits;
    } else {
        memcpy(&bits, &value, 8);
    }
    for (size_t i = 0; i < width; i++)
        little[i] = (uint8_t)(bits >> (8 * i));
    return put_bytes(out, little, width);
}

static int put_interval(Buffer *out, const uint8_t *text, size_t size)
{
    int64_t parts[3];

    if (read_interval(text, size, parts) != DONE)
        return NOT_MINE;
    for (int i = 0; i < 3; i++)
        if (put_long(out, parts[i]) != DONE)
            return FAILED;
    return DONE;
}

static int nibble(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Pairs of hexadecimal digits: lower case in a bytea, upper case in PostGIS's types. */
static int put_hex(Buffer *out, const uint8_t *text, size_t size)
{
    uint8_t *to;
    size_t bytes = size / 2;

    if (size % 2 != 0)
        return NOT_MINE;
    if (put_long(out, (int64_t)bytes) != DONE || buffer_reserve(out, bytes) != DONE)
        return FAILED;
    to = out->data + out->size;
    for (size_t i = 0; i < bytes; i++) {
        int high = nibble(text[2 * i]), low = nibble(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return NOT_MINE;
        to[i] = (uint8_t)(high << 4 | low);
    }
    out->size += bytes;
    return DONE;
}

/* "2024-02-29 12:34:56.789+00" as "2024-02-29T12:34:56.789000Z", with as many digits as the column's
 * precision allows; years of other widths, infinities and other zones are left to Python. */
static int put_zoned(Buffer *out, int digits, const uint8_t *text, size_t size)
{
    size_t sent = size > 22 ? size - 23 : 0, wanted = (size_t)digits;
    int64_t usecs;

    if (size < 22 || text[10] != ' ' || memcmp(text + size - 3, "+00", 3) != 0 ||
        sent > wanted || read_time(AS_TIMESTAMPTZ, text, size, &usecs) != DONE)
        return NOT_MINE;
    if (put_long(out, 20 + (wanted > 0) + (int64_t)wanted) != DONE ||
        put_bytes(out, text, 10) != DONE || put_bytes(out, "T", 1) != DONE ||
        put_bytes(out, text + 11, 8) != DONE)
        return FAILED;
    if (wanted > 0 && (put_bytes(out, ".", 1) != DONE || put_bytes(out, text + 20, sent) != DONE ||
                       put_bytes(out, "000000", wanted - sent) != DONE))
        return FAILED;
    return put_bytes(out, "Z", 1);
}

/* By their names in schemas/types.toml. A conversion that is not here leaves its table to Python. */
const Named conversions[] = {
    {"boolean", AS_BOOLEAN},
    {"integer", AS_INTEGER},
    {"float4", AS_FLOAT},
    {"float8", AS_DOUBLE},
    {"decimal", AS_DECIMAL},
    {"bytea", AS_BYTES},
    {"ewkb", AS_HEX},
    {"date", AS_DATE},
    {"timestamp", AS_TIMESTAMP},
    {"timestamptz", AS_TIMESTAMPTZ},
    {"time", AS_CLOCK},
    {"interval", AS_INTERVAL},
    {"micro_time", AS_CLOCK}, /* 24:00 is left to Python, which carries it here */
    {"zoned_timestamp", AS_ZONED},
    {"text", AS_TEXT},
    {NULL, 0},
};

/* Canonical forms of a key, likewise. */
const Named key_forms[] = {
    {"text", AS_TEXT},
    {"printed", AS_TEXT},
    {"bpchar", AS_BPCHAR},
    {"float", FLOAT_KEY},
    {"numeric", NUMERIC_KEY},
    {"timestamptz", AS_TIMESTAMPTZ},
    {NULL, 0},
};

static int is_named(const Named *named, int code)
{
    for (; named->name != NULL; named++)
        if (named->code == code)
            return 1;
    return 0;
}

int is_value_code(int code)
{
    return is_named(conversions, code);
}

int encode_value(Buffer *out, int code, int scale, const uint8_t *text, size_t size)
{
    int64_t number;

    switch (code) {
    case AS_TEXT:
        return put_sized(out, text, size);
    case AS_INTEGER:
        return read_integer(text, size, &number) == DONE ? put_long(out, number) : NOT_MINE;
    case AS_BOOLEAN:
        if (read_boolean(text, size, &number) != DONE)
            return NOT_MINE;
        return put_bytes(out, number ? "\x01" : "\x00", 1);
    case AS_DECIMAL:
        return put_decimal(out, scale, text, size);
    case AS_DATE:
    case AS_TIMESTAMP:
    case AS_TIMESTAMPTZ:
        return read_time(code, text, size, &number) == DONE ? put_long(out, number) : NOT_MINE;
    case AS_CLOCK:
        return read_clock(text, size, &number) == DONE ? put_long(out, number) : NOT_MINE;
    case AS_INTERVAL:
        return put_interval(out, text, size);
    case AS_ZONED:
        return put_zoned(out, scale, text, size);
    case AS_FLOAT:
    case AS_DOUBLE:
        return put_float(out, code, text, size);
    case AS_BYTES:
        if (size < 2 || text[0] != '\\' || text[1] != 'x')
            return NOT_MINE;
        return put_hex(out, text + 2, size - 2);
    case AS_HEX:
        return put_hex(out, text, size);
    default:
        return NOT_MINE;
    }
}

/* The place after an item that begins at `at`: of a comma or a brace. */
static size_t item_end(const uint8_t *text, size_t size, size_t at)
{
    if (at < size && text[at] == '"') {
        for (at++; at < size && text[at] != '"'; at++)
            if (text[at] == '\\')
                at++;
        return at + 1;
    }
    while (at < size && text[at] != ',' && text[at] != '}')
        at++;
    return at;
}

/* An item within quotes that has escapes. */
static int put_escaped(Buffer *out, int code, int scale, const uint8_t *text, size_t size)
{
    uint8_t *plain = PyMem_Malloc(size > 0 ? size : 1);
    size_t used = 0;
    int got;

    if (plain == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\\')
            i++;
        plain[used++] = text[i];
    }
    got = encode_value(out, code, scale, plain, used);
    PyMem_Free(plain);
    return got;
}

static int put_item(Buffer *out, int code, int scale, const uint8_t *text, size_t size)
{
    if (size == 4 && memcmp(text, "NULL", 4) == 0)
        return put_bytes(out, "\x00", 1);
    if (put_bytes(out, "\x02", 1) != DONE)
        return FAILED;
    if (size > 0 && text[0] == '"') {
        if (memchr(text, '\\', size) != NULL)
            return put_escaped(out, code, scale, text + 1, size - 2);
        return encode_value(out, code, scale, text + 1, size - 2);
    }
    for (size_t i = 0; i < size; i++)
        if (text[i] == '"' || text[i] == '\\' || text[i] == '{')
            return NOT_MINE;
    return size > 0 ? encode_value(out, code, scale, text, size) : NOT_MINE;
}

/* An array of one dimension, "{1,NULL,3}", in one block of items that may be null. */
int encode_array(Buffer *out, int code, int scale, const uint8_t *text, size_t size)
{
    int64_t items = 0;
    size_t at, end;

    if (size < 2 || text[0] != '{' || text[size - 1] != '}')
        return NOT_MINE;
    if (size == 2)
        return put_long(out, 0);
    for (at = 1; at < size; at = end + 1) {
        end = item_end(text, size, at);
        if (end >= size || text[end] != (end == size - 1 ? '}' : ','))
            return NOT_MINE;
        items++;
    }
    if (items > MOST_ITEMS / (code == AS_INTERVAL ? VALUES_OF_INTERVAL : 1)) /* fields count */
        return NOT_MINE;
    if (put_long(out, items) != DONE)
        return FAILED;
    for (at = 1; at < size; at = end + 1) {
        int got;

        end = item_end(text, size, at);
        got = put_item(out, code, scale, text + at, end - at);
        if (got != DONE)
            return got;
    }
    return put_long(out, 0);
}

/* Two bounds that may be null, whether each is included, whether the range is empty. */
int encode_range(Buffer *out, int code, int scale, const uint8_t *text, size_t size)
{
    uint8_t flags[3] = {0, 0, 0};
    size_t at = 1;

    if (size == 5 && memcmp(text, "empty", 5) == 0)
        return put_bytes(out, "\0\0\0\0\1", 5);
    if (size < 3 || (text[0] != '[' && text[0] != '(') ||
        (text[size - 1] != ']' && text[size - 1] != ')'))
        return NOT_MINE;
    for (int upper = 0; upper < 2; upper++) {
        size_t is_quoted = text[at] == '"', end;
        int got;

        at += is_quoted;
        for (end = at; end < size - 1 && text[end] != (is_quoted ? '"' : ','); end++)
            if (text[end] == '\\' || (!is_quoted && memchr("\"()[]", text[end], 5) != NULL))
                return NOT_MINE;
        if (is_quoted || end > at) {
            if (put_bytes(out, "\x02", 1) != DONE)
                return FAILED;
            got = encode_value(out, code, scale, text + at, end - at);
        } else {
            got = put_bytes(out, "\x00", 1);
        }
        if (got != DONE)
            return got;
        at = end + is_quoted;
        if (upper ? at != size - 1 : at >= size - 1 || text[at] != ',')
            return NOT_MINE;
        at++;
    }
    flags[0] = text[0] == '[';
    flags[1] = text[size - 1] == ']';
    return put_bytes(out, flags, sizeof flags);
}

int is_canonical_code(int code)
{
    return is_named(key_forms, code);
}

int encode_canonical(Buffer *out, int code, const uint8_t *text, size_t size)
{
    char printed[32];
    uint8_t length[4];
    int64_t usecs;

    switch (code) {
    case AS_TEXT:
        break;
    case AS_BPCHAR:
        trim_blanks(text, &size);
        break;
    case NUMERIC_KEY:
        if (size > 0 && memchr(text, '.', size) != NULL) {
            while (size > 0 && text[size - 1] == '0')
                size--;
            while (size > 0 && text[size - 1] == '.')
                size--;
        }
        break;
    case FLOAT_KEY:
        if (size == 2 && text[0] == '-' && text[1] == '0') {
            text++;
            size--;
        }
        break;
    case AS_TIMESTAMPTZ:
        if (read_time(code, text, size, &usecs) != DONE)
            return NOT_MINE;
        usecs -= USECS_1970_TO_2000;
        size = (size_t)PyOS_snprintf(printed, sizeof printed, "%lld", (long long)usecs);
        text = (const uint8_t *)printed;
        break;
    default:
        return NOT_MINE;
    }
    if (size > INT32_MAX)
        return NOT_MINE;
    for (int i = 0; i < 4; i++)
        length[i] = (uint8_t)(size >> (24 - 8 * i));
    if (put_bytes(out, length, 4) != DONE)
        return FAILED;
    return put_bytes(out, text, size);
}

/* CRC-32 (ISO-HDLC), as zlib's. */
uint32_t crc_of(const uint8_t *data, size_t size)
{
    static uint32_t table[256];
    uint32_t crc = UINT32_MAX;

    if (table[1] == 0) { /* under the GIL */
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t c = n;
            for (int k = 0; k < 8; k++)
                c = c & 1 ? UINT32_C(0xEDB88320) ^ (c >> 1) : c >> 1;
            table[n] = c;
        }
    }
    for (size_t i = 0; i < size; i++)
        crc = table[(crc ^ data[i]) & 0xFF] ^ (crc >> 8);
    return crc ^ UINT32_MAX;
}
