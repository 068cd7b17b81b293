/* PostgreSQL's texts, read: for the texts that a server prints every day. Every other text, right or
 * wrong, is NOT_MINE: Python reads it, or says what is wrong with it.
 */
#ifndef PGSLUICE_TEXTS_H
#define PGSLUICE_TEXTS_H

#include <stddef.h>
#include <stdint.h>

#include "declared.h"

enum { FAILED = -1, DONE = 0, NOT_MINE = 1 };
/* FAILED: no memory, or a Python exception is set. The output is valid only with DONE. */

/* Codes of the ways to read a value: those that conditions have, too, are in declared.h. */
enum { AS_BYTES = 'x', AS_CLOCK = 'c', AS_INTERVAL = 'v' };

#define USECS_1970_TO_2000 INT64_C(946684800000000)

static inline int digit(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : -1;
}

int read_integer(const uint8_t *text, size_t size, int64_t *number);
int read_boolean(const uint8_t *text, size_t size, int64_t *number);
int read_double(const uint8_t *text, size_t size, double *value);
int read_float(const uint8_t *text, size_t size, double *value);
int read_interval(const uint8_t *text, size_t size, int64_t parts[3]);
int read_clock(const uint8_t *text, size_t size, int64_t *usecs);
int read_time(int code, const uint8_t *text, size_t size, int64_t *number);
int read_moment(int code, const uint8_t *text, size_t size, int64_t *number);
int is_decimal(const uint8_t *text, size_t size);
int compare_decimals(const uint8_t *one, size_t one_size, const uint8_t *other, size_t other_size);
void trim_blanks(const uint8_t *text, size_t *size);

#endif
