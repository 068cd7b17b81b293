#include "texts.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <math.h>
#include <string.h>

#define USECS_PER_DAY INT64_C(86400000000)
#define DAYS_1970_TO_2000 10957
/* The bits of a double that a real has no room for, and half of the last that it has. */
#define HALF_A_REAL_MASK UINT64_C(0x1FFFFFFF)
#define HALF_A_REAL UINT64_C(0x10000000)

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

int read_integer(const uint8_t *text, size_t size, int64_t *number)
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
    *number = at ? -value : value;
    return DONE;
}

int read_boolean(const uint8_t *text, size_t size, int64_t *number)
{
    if (size != 1 || (text[0] != 't' && text[0] != 'f'))
        return NOT_MINE;
    *number = text[0] == 't';
    return DONE;
}

static const uint8_t *point_of(const uint8_t *text, size_t size)
{
    const uint8_t *point = size > 0 ? memchr(text, '.', size) : NULL;

    return point != NULL ? point : text + size;
}

/* An optional sign, digits, and more digits after a point. */
int is_decimal(const uint8_t *text, size_t size)
{
    const uint8_t *end = text + size, *point;

    if (size > 0 && text[0] == '-')
        text++;
    point = point_of(text, (size_t)(end - text));
    if (point == text || point + 1 == end)
        return 0;
    for (const uint8_t *at = text; at < end; at++)
        if (at != point && digit(*at) < 0)
            return 0;
    return 1;
}

/* A decimal without its sign, and without zeros that say nothing. */
typedef struct {
    const uint8_t *whole, *fraction;
    size_t whole_size, fraction_size;
} Digits;

static Digits digits_of(const uint8_t *text, size_t size)
{
    const uint8_t *end = text + size, *point = point_of(text, size);
    Digits found;

    while (text < point && *text == '0')
        text++;
    found.whole = text;
    found.whole_size = (size_t)(point - text);
    found.fraction = point < end ? point + 1 : end;
    while (end > found.fraction && end[-1] == '0')
        end--;
    found.fraction_size = (size_t)(end - found.fraction);
    return found;
}

static int compare_digits(const Digits *one, const Digits *other)
{
    size_t common =
        one->fraction_size < other->fraction_size ? one->fraction_size : other->fraction_size;
    int got;

    if (one->whole_size != other->whole_size)
        return one->whole_size < other->whole_size ? -1 : 1;
    got = memcmp(one->whole, other->whole, one->whole_size);
    if (got == 0)
        got = memcmp(one->fraction, other->fraction, common);
    if (got != 0 || one->fraction_size == other->fraction_size)
        return got;
    return one->fraction_size < other->fraction_size ? -1 : 1;
}

/* Below zero, zero or above it; both are decimals. */
int compare_decimals(const uint8_t *one, size_t one_size, const uint8_t *other, size_t other_size)
{
    size_t one_sign = one[0] == '-', other_sign = other[0] == '-';
    Digits a = digits_of(one + one_sign, one_size - one_sign);
    Digits b = digits_of(other + other_sign, other_size - other_sign);

    if (a.whole_size + a.fraction_size == 0)
        one_sign = 0;
    if (b.whole_size + b.fraction_size == 0)
        other_sign = 0;
    if (one_sign != other_sign)
        return one_sign ? -1 : 1;
    return one_sign ? compare_digits(&b, &a) : compare_digits(&a, &b);
}

int read_double(const uint8_t *text, size_t size, double *value)
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

/* A real as strtof reads it: what lies half way between two of them is left to Python. */
int read_float(const uint8_t *text, size_t size, double *value)
{
    uint64_t bits;
    float narrow;

    if (read_double(text, size, value) != DONE)
        return NOT_MINE;
    memcpy(&bits, value, 8);
    narrow = (float)*value;
    if ((bits & HALF_A_REAL_MASK) == HALF_A_REAL || !isfinite(narrow))
        return NOT_MINE;
    if (*value != 0 && fabsf(narrow) < FLT_MIN)
        return NOT_MINE;
    *value = narrow;
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

/* Microseconds since midnight of "HH:MM:SS[.f]"; 24:00 is left to Python. */
int read_clock(const uint8_t *text, size_t size, int64_t *usecs)
{
    static const int units[] = {0, 100000, 10000, 1000, 100, 10, 1};
    int hours, minutes, seconds, fraction = 0;

    if (size != 8 && (size < 10 || size > 15))
        return NOT_MINE;
    if (text[2] != ':' || text[5] != ':')
        return NOT_MINE;
    hours = digits(text, 2);
    minutes = digits(text + 3, 2);
    seconds = digits(text + 6, 2);
    if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59 || seconds < 0 || seconds > 59)
        return NOT_MINE;
    if (size > 8) {
        fraction = text[8] == '.' ? digits(text + 9, size - 9) : -1;
        if (fraction < 0)
            return NOT_MINE;
        fraction *= units[size - 9];
    }
    *usecs = ((hours * 60 + minutes) * 60 + seconds) * INT64_C(1000000) + fraction;
    return DONE;
}

/* A number with a sign or without, of nine digits at most; `at` goes behind it. */
static int read_part(const uint8_t *text, size_t size, size_t *at, int64_t *number)
{
    int is_negative = *at < size && text[*at] == '-';
    size_t first;

    if (*at < size && (text[*at] == '-' || text[*at] == '+'))
        ++*at;
    first = *at;
    for (*number = 0; *at < size && digit(text[*at]) >= 0; ++*at) {
        if (*at - first == 9)
            return NOT_MINE;
        *number = *number * 10 + digit(text[*at]);
    }
    if (is_negative)
        *number = -*number;
    return *at > first ? DONE : NOT_MINE;
}

/* Whether the text at `at` is a unit, which `at` goes behind with the blank after it. */
static int is_unit(const char *unit, const uint8_t *text, size_t size, size_t *at)
{
    size_t length = strlen(unit), end = *at + length;

    if (end > size || memcmp(text + *at, unit, length) != 0)
        return 0;
    if (end < size && text[end] == 's')
        end++;
    if (end < size && (text[end] != ' ' || ++end == size))
        return 0;
    *at = end;
    return 1;
}

/* Months, days and microseconds of "1 year 2 mons -3 days +04:05:06[.f]", of which parts are left
 * out, in this order; hours of more than nine digits are left to Python. */
int read_interval(const uint8_t *text, size_t size, int64_t parts[3])
{
    static const char *const units[] = {" year", " mon", " day"};
    static const int places[] = {0, 0, 1}, factors[] = {12, 1, 1};
    int next = 0;
    size_t at = 0;

    if (size == 0)
        return NOT_MINE;
    memset(parts, 0, 3 * sizeof parts[0]);
    while (at < size) {
        int is_negative = text[at] == '-';
        int64_t number;

        if (read_part(text, size, &at, &number) != DONE)
            return NOT_MINE;
        if (at < size && text[at] == ':') {
            uint8_t clock[16] = "00";

            if (size - at < 6 || size - at > 13)
                return NOT_MINE;
            memcpy(clock + 2, text + at, size - at);
            if (read_clock(clock, size - at + 2, &parts[2]) != DONE)
                return NOT_MINE;
            parts[2] += (is_negative ? -number : number) * INT64_C(3600000000);
            if (is_negative)
                parts[2] = -parts[2];
            break;
        }
        while (next < 3 && !is_unit(units[next], text, size, &at))
            next++;
        if (next == 3)
            return NOT_MINE;
        parts[places[next]] += number * factors[next];
        next++;
    }
    return parts[0] == (int32_t)parts[0] ? DONE : NOT_MINE;
}

/* Microseconds since 1970-01-01 of "YYYY-MM-DD HH:MM:SS[.f]", with "+00" after it if `zoned`. */
static int read_timestamp(const uint8_t *text, size_t size, int zoned, int64_t *usecs)
{
    int64_t days;

    if (zoned) {
        if (size < 3 || memcmp(text + size - 3, "+00", 3) != 0)
            return NOT_MINE;
        size -= 3;
    }
    if (size < 19 || text[10] != ' ' || read_clock(text + 11, size - 11, usecs) != DONE ||
        read_date(text, &days) != DONE)
        return NOT_MINE;
    *usecs += days * USECS_PER_DAY;
    return DONE;
}

/* Read days since 1970 for AS_DATE, else microseconds. */
int read_time(int code, const uint8_t *text, size_t size, int64_t *number)
{
    if (code != AS_DATE)
        return read_timestamp(text, size, code == AS_TIMESTAMPTZ, number);
    return size == 10 ? read_date(text, number) : NOT_MINE;
}

/* Since 2000, as PostgreSQL counts; the infinities are the ends of int64_t. */
int read_moment(int code, const uint8_t *text, size_t size, int64_t *number)
{
    static const char infinity[] = "-infinity";
    size_t is_positive = size > 0 && text[0] == 'i';

    if (size == sizeof infinity - 1 - is_positive &&
        memcmp(text, infinity + is_positive, size) == 0) {
        *number = is_positive ? INT64_MAX : INT64_MIN;
        return DONE;
    }
    if (read_time(code, text, size, number) != DONE)
        return NOT_MINE;
    *number -= code == AS_DATE ? DAYS_1970_TO_2000 : USECS_1970_TO_2000;
    return DONE;
}

void trim_blanks(const uint8_t *text, size_t *size)
{
    while (*size > 0 && text[*size - 1] == ' ')
        --*size;
}
