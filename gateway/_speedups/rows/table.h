/* The route of one announced relation: a table in numbers, read from Python once.
 *
 * All Python objects below are borrowed: `kept` holds the specification that they are parts of.
 */
#ifndef PGSLUICE_TABLE_H
#define PGSLUICE_TABLE_H

#include "candidates.h"
#include "values.h"

enum { INSERT, UPDATE, DELETE, OPERATIONS };

/* Counts of gateway.routing.row.counters.TopicCounter: the first three by operation. */
enum { RECORDS = OPERATIONS, OTHERS, COUNTS };

typedef struct {
    uint8_t code;
    uint8_t is_identity, is_array, is_range;
    int16_t scale;
    int32_t index; /* of the column in a tuple; checked against the table's width */
    const uint8_t *unavailable; /* in place of a value of a new row that did not change */
    Py_ssize_t unavailable_size;
} Field;

typedef struct {
    Field *fields;
    Py_ssize_t count;
} Fields;

struct Target {
    PyObject *topic, *counter;
    const uint8_t *key_prefix, *value_prefix;
    Py_ssize_t key_prefix_size, value_prefix_size;
    long partitions;
    int skips_origins;
    Py_ssize_t feed, number; /* its subscription's place, and its topic's, among all */
    Py_ssize_t counts[COUNTS]; /* since the last report to the counter, or of the transaction */
    Py_ssize_t ended[OPERATIONS]; /* of ended transactions, not yet reported to the counter */
    int has_ended;
};

typedef struct {
    Fields row, key, canonical, place;
    PyObject *names; /* tuple: each field's name as an Avro string */
    int has_key, key_is_union, has_place, needs_full, names_keys, is_spread, tombstones;
    const uint8_t *table_part;
    Py_ssize_t table_part_size;
    Py_ssize_t surely_fits;
    Target *targets;
    Py_ssize_t target_count;
    Condition *conditions;
    Py_ssize_t condition_count;
    Candidates candidates[OPERATIONS]; /* who is asked about a row of each operation */
    int64_t order; /* data_collection_order of the change at hand */
} Group;

typedef struct {
    PyObject *kept;
    uint32_t oid;
    Py_ssize_t columns;
    int is_alone; /* its rows are numbered with those of no other relation */
    PyObject *unchanged; /* what stands for a TOASTed value that was not sent */
    uint8_t *is_read;    /* by column: whether a decision in Python looks at it */
    Group *groups;
    Py_ssize_t group_count;
} Table;

int grow(void **items, size_t *room, size_t count, size_t size);
int read_bytes(PyObject *from, const uint8_t **data, Py_ssize_t *size);
int table_read(Table *table, PyObject *specification);
void table_free(Table *table);

#endif
