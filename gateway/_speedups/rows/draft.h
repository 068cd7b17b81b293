/* A change as records before they have a topic: tuples split, keys and envelopes encoded. */
#ifndef PGSLUICE_DRAFT_H
#define PGSLUICE_DRAFT_H

#include "../frames.h"
#include "table.h"

typedef struct {
    PyObject *record;
    Target *target;
    int is_tombstone;
    int counted_as; /* the operation, for the first record of a change that is no plain INSERT; -1
                       for all others */
    int is_other; /* it is not of a plain INSERT */
    size_t size;  /* of the value, in bytes */
} Made;

typedef struct {
    Made *items;
    size_t count, room;
} MadeList;

typedef struct {
    Target **items;
    size_t count, room;
} TargetList;

/* Parts that all changes of a transaction share; the objects are the caller's. */
typedef struct {
    const uint8_t *gateway_part;
    Py_ssize_t gateway_size;
    Buffer encoded; /* the parts of the envelope that are the same for all, one after the other */
    size_t transaction_end, id_end;
    PyObject *headers[HEADERS]; /* NULL for those of single records, and for what it lacks */
    Py_ssize_t header_count;
    int has_origin;
} Shared;

typedef struct {
    Table table;
    Value *old_values, *new_values;
    PyObject *old_row, *new_row; /* of the change at hand, made when a decision wants them */
    Buffer scratch;
    Buffer unescaped; /* texts of the row of a copy that is at hand */
    CandidateList found, before;
    MadeList made;
    TargetList counted; /* those that have counts */
    Shared *shared;
    size_t frame_size; /* of the change at hand */
    int64_t lsn, seq, total_order;
} Work;

typedef struct {
    size_t key_at, key_size, body_at, body_size;
    uint32_t hash;
    PyObject *headers;
    int has_key, has_tombstone;
} Draft;

typedef struct {
    Draft items[2];
    int count; /* -1: not made yet */
} Drafts;

/* A new reference. */
static inline PyObject *shared_item(PyObject *item)
{
    Py_INCREF(item);
    return item;
}

/* Parts of rows: what did not change has Debezium's text in a new row alone. */
enum { NEW_ROW, OLD_ROW, OLD_KEY };

int names_make(void);
PyObject *record_of(PyObject *topic, long partition, PyObject *key, PyObject *value,
                    PyObject *headers);
int read_shared(Shared *shared, PyObject *from);
int encode_shared(Shared *shared, int64_t xid, int64_t commit_lsn, int64_t commit_ms,
                  PyObject *origin, int64_t ts_ms);
int begin_headers(Shared *shared, int64_t commit_lsn, int64_t xid);
void end_of_headers(Shared *shared);
PyObject *end_headers(const Shared *shared, int64_t commit_lsn, int64_t seq);
int split(const Table *table, const uint8_t *frame, size_t size, size_t *at, Value *values);
int has_unchanged(const Table *table, const Value *values);
int put_row(Buffer *out, const Fields *fields, const Value *values, int part);
int put_key(Buffer *out, const Group *group, const Value *values);
int hash_key(Buffer *out, const Group *group, const Value *values, uint32_t *hash);
int draft(Work *work, const Group *group, int op, const Value *keyed, const Value *before, int full,
          const Value *after, int64_t seq, int rekey, Drafts *to);
int draft_update(Work *work, const Group *group, int action, int has_old, int full, Drafts *to);

#endif
