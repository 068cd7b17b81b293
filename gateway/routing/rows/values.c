#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <string.h>

#include "values.h"

#define USECS_PER_DAY INT64_C(86400000000)
#define DAYS_1970_TO_2000 10957

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

static int digit(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : -1;
}

/* The number of exactly `size` digits, at most 9 of them; -1 when there is anything else. */
static int digits(const uint8_t *text, size_t size)
{
    int value = 0;

    for (size_t i = 0; i < size; i++) {
        int d = digit(text[i]);
        if (d < 0)
            return -1;
        value = value * 10 + d;
    }
    return value;
}

static int put_integer(Buffer *out, const uint8_t *text, size_t size)
{
    size_t at = size > 0 && text[0] == '-';
    int64_t value = 0;

    /* 18 digits fit into any case; the ends of a bigint are left to Python. */
    if (at == size || size - at > 18)
        return NOT_MINE;
    for (size_t i = at; i < size; i++) {
        int d = digit(text[i]);
        if (d < 0)
            return NOT_MINE;
        value = value * 10 + d;
    }
    return put_long(out, at ? -value : value);
}

/* numeric(p, s) prints exactly s digits behind its point. */
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

static int read_double(const uint8_t *text, size_t size, double *value)
{
    char copy[64];
    char *end;

    if (size == 0 || size >= sizeof copy)
        return NOT_MINE;
    for (size_t i = 0; i < size; i++) {
        uint8_t c = text[i];
        if (digit(c) < 0 && c != '-' && c != '+' && c != '.' && c != 'e')
            return NOT_MINE; /* NaN and the infinities, too */
        copy[i] = (char)c;
    }
    copy[size] = '\0';
    *value = PyOS_string_to_double(copy, &end, NULL);
    if (*value == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        return NOT_MINE;
    }
    return end == copy + size && isfinite(*value) ? DONE : NOT_MINE;
}

static int put_float(Buffer *out, int code, const uint8_t *text, size_t size)
{
    uint8_t little[8];
    size_t width = code == AS_FLOAT ? 4 : 8;
    uint64_t bits;
    double value;
    int got = read_double(text, size, &value);

    if (got != DONE)
        return got;
    if (code == AS_FLOAT) {
        float narrow = (float)value;
        uint32_t narrow_bits;
        if (!isfinite(narrow))
            return NOT_MINE;
        memcpy(&narrow_bits, &narrow, 4);
        bits = narrow_bits;
    } else {
        memcpy(&bits, &value, 8);
    }
    for (size_t i = 0; i < width; i++)
        little[i] = (uint8_t)(bits >> (8 * i));
    return put_bytes(out, little, width);
}

static int nibble(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

static int put_hex(Buffer *out, const uint8_t *text, size_t size)
{
    uint8_t *to;
    size_t bytes;

    if (size < 2 || size % 2 != 0 || text[0] != '\\' || text[1] != 'x')
        return NOT_MINE;
    bytes = size / 2 - 1;
    if (put_long(out, (int64_t)bytes) != DONE || buffer_reserve(out, bytes) != DONE)
        return FAILED;
    to = out->data + out->size;
    for (size_t i = 0; i < bytes; i++) {
        int high = nibble(text[2 + 2 * i]), low = nibble(text[3 + 2 * i]);
        if (high < 0 || low < 0)
            return NOT_MINE;
        to[i] = (uint8_t)(high << 4 | low);
    }
    out->size += bytes;
    return DONE;
}

/* Days since 1970-01-01 of "YYYY-MM-DD", from the year 1 on. */
static int read_date(const uint8_t *text, int64_t *days)
{
    static const uint8_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = digits(text, 4), month = digits(text + 5, 2), day = digits(text + 8, 2);
    int leap, last, shifted, era_year, day_of_year;

    if (text[4] != '-' || text[7] != '-' || year < 1 || month < 1 || month > 12 || day < 1)
        return NOT_MINE;
    leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    last = lengths[month - 1] + (month == 2 && leap);
    if (day > last)
        return NOT_MINE;
    /* Years that begin in March, so that the leap day is their last. */
    shifted = year - (month <= 2);
    era_year = shifted % 400;
    day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    *days = (int64_t)(shifted / 400) * 146097 + era_year * 365 + era_year / 4 - era_year / 100 +
            day_of_year - 719468;
    return DONE;
}

/* Microseconds since 1970-01-01 of "YYYY-MM-DD HH:MM:SS[.f]", with "+00" behind it if `zoned`. */
static int read_timestamp(const uint8_t *text, size_t size, int zoned, int64_t *usecs)
{
    static const int units[] = {0, 100000, 10000, 1000, 100, 10, 1};
    int hours, minutes, seconds, fraction = 0;
    int64_t days;

    if (zoned) {
        if (size < 3 || memcmp(text + size - 3, "+00", 3) != 0)
            return NOT_MINE;
        size -= 3;
    }
    if (size != 19 && (size < 21 || size > 26))
        return NOT_MINE;
    if (text[10] != ' ' || text[13] != ':' || text[16] != ':')
        return NOT_MINE;
    hours = digits(text + 11, 2);
    minutes = digits(text + 14, 2);
    seconds = digits(text + 17, 2);
    if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59 || seconds < 0 || seconds > 59)
        return NOT_MINE;
    if (size > 19) {
        fraction = text[19] == '.' ? digits(text + 20, size - 20) : -1;
        if (fraction < 0)
            return NOT_MINE;
        fraction *= units[size - 20];
    }
    if (read_date(text, &days) != DONE)
        return NOT_MINE;
    *usecs = days * USECS_PER_DAY + ((hours * 60 + minutes) * 60 + seconds) * INT64_C(1000000) +
             fraction;
    return DONE;
}

int is_value_code(int code)
{
    return code != '\0' && strchr("bifdnxatzs", code) != NULL;
}

int encode_value(Buffer *out, int code, int scale, const uint8_t *text, size_t size)
{
    int64_t number;

    switch (code) {
    case AS_TEXT:
        return put_sized(out, text, size);
    case AS_INTEGER:
        return put_integer(out, text, size);
    case AS_BOOLEAN:
        if (size != 1 || (text[0] != 't' && text[0] != 'f'))
            return NOT_MINE;
        return put_bytes(out, text[0] == 't' ? "\x01" : "\x00", 1);
    case AS_DECIMAL:
        return put_decimal(out, scale, text, size);
    case AS_TIMESTAMP:
    case AS_TIMESTAMPTZ:
        if (read_timestamp(text, size, code == AS_TIMESTAMPTZ, &number) != DONE)
            return NOT_MINE;
        return put_long(out, number);
    case AS_DATE:
        if (size != 10 || read_date(text, &number) != DONE)
            return NOT_MINE;
        return put_long(out, number);
    case AS_FLOAT:
    case AS_DOUBLE:
        return put_float(out, code, text, size);
    case AS_BYTES:
        return put_hex(out, text, size);
    default:
        return NOT_MINE;
    }
}

int is_canonical_code(int code)
{
    return code != '\0' && strchr("szNFB", code) != NULL;
}

int encode_canonical(Buffer *out, int code, const uint8_t *text, size_t size)
{
    char printed[32];
    uint8_t length[4];
    int64_t usecs;

    switch (code) {
    case AS_TEXT:
        break;
    case BPCHAR_KEY:
        while (size > 0 && text[size - 1] == ' ')
            size--;
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
        if (read_timestamp(text, size, 1, &usecs) != DONE)
            return NOT_MINE;
        usecs -= DAYS_1970_TO_2000 * USECS_PER_DAY;
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
