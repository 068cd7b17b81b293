#include "draft.h"

#include <string.h>

/* Whoever declares another one has to make it here, unless it is a constant. */
_Static_assert(HEADERS_OF_RECORD == (1u << HEADER_LSN | 1u << HEADER_SEQ | 1u << HEADER_OP |
                                     1u << HEADER_REKEY),
               "schemas/headers.toml declares a header of each record that is not made here");
_Static_assert(HEADERS_OF_TRANSACTION == (1u << HEADER_COMMIT_LSN | 1u << HEADER_XID |
                                          1u << HEADER_ORIGIN | 1u << HEADER_GID),
               "schemas/headers.toml declares a header of transactions that is not made here");

static PyObject *names[HEADERS], *constants[HEADERS], *op_headers[3], *end_header,
    *rekey_headers[2];

/* Steals `value`, which may be NULL after an exception. */
static PyObject *pair_of(PyObject *name, PyObject *value)
{
    PyObject *pair = PyTuple_New(KAFKA_HEADER_SIZE);

    if (pair == NULL || value == NULL) {
        Py_XDECREF(pair);
        Py_XDECREF(value);
        return NULL;
    }
    PyTuple_SetItem(pair, KAFKA_HEADER_NAME, shared_item(name));
    PyTuple_SetItem(pair, KAFKA_HEADER_VALUE, value);
    return pair;
}

static PyObject *header(int number, const char *text)
{
    return pair_of(names[number], PyBytes_FromString(text));
}

static PyObject *op_header(int letter)
{
    char text[2] = {(char)letter};

    return header(HEADER_OP, text);
}

int names_make(void)
{
    static const char *const declared[HEADERS] = HEADER_NAMES, *const values[HEADERS] = HEADER_VALUES;
    static const char *const kinds[] = KIND_NAMES;

    for (int i = 0; i < HEADERS; i++) {
        if ((names[i] = PyUnicode_InternFromString(declared[i])) == NULL)
            return FAILED;
        if (values[i] != NULL && (constants[i] = header(i, values[i])) == NULL)
            return FAILED;
    }
    op_headers[0] = op_header(OP_INSERTED);
    op_headers[1] = op_header(OP_UPDATED);
    op_headers[2] = op_header(OP_DELETED);
    end_header = header(HEADER_OP, kinds[KIND_END]);
    rekey_headers[0] = header(HEADER_REKEY, REKEY_OLD);
    rekey_headers[1] = header(HEADER_REKEY, REKEY_NEW);
    return op_headers[0] && op_headers[1] && op_headers[2] && end_header && rekey_headers[0] &&
                   rekey_headers[1]
               ? DONE
               : FAILED;
}

/* As gateway.envelope.envelope.TransactionContext encodes it; not of a snapshot. */
int encode_shared(Shared *shared, int64_t xid, int64_t commit_lsn, int64_t commit_ms,
                  PyObject *origin, int64_t ts_ms)
{
    Buffer *out = &shared->encoded;
    const uint8_t *name;
    Py_ssize_t size;
    char text[48];

    out->size = 0;
    if (put_long(out, commit_ms) != DONE || put_bytes(out, "\x0a" "false", 6) != DONE ||
        put_long(out, commit_lsn) != DONE || put_bytes(out, "\x02", 1) != DONE ||
        put_long(out, xid) != DONE)
        return FAILED;
    if (origin == Py_None) {
        if (put_bytes(out, "\x00", 1) != DONE)
            return FAILED;
    } else if (read_bytes(origin, &name, &size) != DONE || put_bytes(out, "\x02", 1) != DONE ||
               put_long(out, size) != DONE || put_bytes(out, name, (size_t)size) != DONE) {
        return FAILED;
    }
    shared->transaction_end = out->size;
    size = PyOS_snprintf(text, sizeof text, "%lld:%lld", (long long)xid, (long long)commit_lsn);
    if (put_bytes(out, "\x02", 1) != DONE || put_long(out, size) != DONE ||
        put_bytes(out, text, (size_t)size) != DONE)
        return FAILED;
    shared->id_end = out->size;
    if (put_bytes(out, "\x02", 1) != DONE)
        return FAILED;
    return put_long(out, ts_ms);
}

/* Those that gateway.envelope.headers.HeaderMaker shares; they are borrowed. */
static int read_headers(Shared *shared, PyObject *from)
{
    Py_ssize_t at = 0;

    shared->header_count = 0;
    for (int i = 0; i < HEADERS; i++) {
        PyObject *item = NULL;

        if (!(HEADERS_OF_RECORD & 1u << i) && (item = PyTuple_GetItem(from, at++)) == NULL)
            return FAILED;
        shared->headers[i] = item == Py_None ? NULL : item;
        shared->header_count += shared->headers[i] != NULL;
    }
    return DONE;
}

int read_shared(Shared *shared, PyObject *from)
{
    long long xid, commit_lsn, commit_ms, ts_ms;

    if (!has_layout(from, SHARED_SIZE, "transaction's part"))
        return FAILED;
    xid = PyLong_AsLongLong(PyTuple_GetItem(from, SHARED_XID));
    commit_lsn = PyLong_AsLongLong(PyTuple_GetItem(from, SHARED_COMMIT_LSN));
    commit_ms = PyLong_AsLongLong(PyTuple_GetItem(from, SHARED_COMMIT_MS));
    ts_ms = PyLong_AsLongLong(PyTuple_GetItem(from, SHARED_TS_MS));
    shared->has_origin = PyObject_IsTrue(PyTuple_GetItem(from, SHARED_HAS_ORIGIN));
    if (PyErr_Occurred() ||
        read_headers(shared, PyTuple_GetItem(from, SHARED_HEADERS)) != DONE ||
        read_bytes(PyTuple_GetItem(from, SHARED_GATEWAY_PART), &shared->gateway_part,
                   &shared->gateway_size) != DONE)
        return FAILED;
    return encode_shared(shared, xid, commit_lsn, commit_ms, PyTuple_GetItem(from, SHARED_ORIGIN),
                         ts_ms);
}

/* Steals key and value, either of which may be NULL after an exception. */
PyObject *record_of(PyObject *topic, long partition, PyObject *key, PyObject *value,
                    PyObject *headers)
{
    PyObject *record = PyTuple_New(RECORD_SIZE), *number = PyLong_FromLong(partition);

    if (record == NULL || number == NULL || key == NULL || value == NULL) {
        Py_XDECREF(record);
        Py_XDECREF(number);
        Py_XDECREF(key);
        Py_XDECREF(value);
        return NULL;
    }
    PyTuple_SetItem(record, RECORD_TOPIC, shared_item(topic));
    PyTuple_SetItem(record, RECORD_PARTITION, number);
    PyTuple_SetItem(record, RECORD_KEY, key);
    PyTuple_SetItem(record, RECORD_VALUE, value);
    PyTuple_SetItem(record, RECORD_HEADERS, shared_item(headers));
    return record;
}

int grow(void **items, size_t *room, size_t count, size_t size)
{
    size_t wanted = *room < 16 ? 16 : *room * 2;
    void *memory;

    if (count < *room)
        return DONE;
    memory = PyMem_Realloc(*items, wanted * size);
    if (memory == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    *items = memory;
    *room = wanted;
    return DONE;
}

/* Split the TupleData at `*at`; a tuple of another width, or with binary values, is NOT_MINE. */
int split(const Table *table, const uint8_t *frame, size_t size, size_t *at, Value *values)
{
    size_t position = *at;

    if (size - position < 2 || (frame[position] << 8 | frame[position + 1]) != table->columns)
        return NOT_MINE;
    position += 2;
    for (Py_ssize_t i = 0; i < table->columns; i++) {
        Value *value = &values[i];
        uint32_t length;

        if (size - position < 1)
            return NOT_MINE;
        value->kind = frame[position++];
        value->text = NULL;
        value->size = 0;
        if (value->kind == VALUE_NULL || value->kind == VALUE_UNCHANGED)
            continue;
        if (value->kind != VALUE_TEXT || size - position < 4)
            return NOT_MINE;
        length = (uint32_t)frame[position] << 24 | (uint32_t)frame[position + 1] << 16 |
                 (uint32_t)frame[position + 2] << 8 | frame[position + 3];
        position += 4;
        if (length > size - position)
            return NOT_MINE;
        value->text = frame + position;
        value->size = length;
        position += length;
    }
    *at = position;
    return DONE;
}

int has_unchanged(const Table *table, const Value *values)
{
    for (Py_ssize_t i = 0; i < table->columns; i++)
        if (values[i].kind == VALUE_UNCHANGED)
            return 1;
    return 0;
}

static int put_field(Buffer *out, const Field *field, const Value *value)
{
    int (*encode)(Buffer *, int, int, const uint8_t *, size_t) =
        field->is_array ? encode_array : field->is_range ? encode_range : encode_value;

    return encode(out, field->code, field->scale, value->text, value->size);
}

int put_row(Buffer *out, const Fields *fields, const Value *values, int part)
{
    for (Py_ssize_t i = 0; i < fields->count; i++) {
        const Field *field = &fields->fields[i];
        const Value *value = &values[field->index];
        int got;

        if (value->kind == VALUE_UNCHANGED && part == NEW_ROW) {
            if (put_bytes(out, field->unavailable, (size_t)field->unavailable_size) != DONE)
                return FAILED;
            continue;
        }
        if (value->kind != VALUE_TEXT || (part == OLD_KEY && !field->is_identity)) {
            if (put_bytes(out, "\x00", 1) != DONE)
                return FAILED;
            continue;
        }
        if (put_bytes(out, "\x02", 1) != DONE)
            return FAILED;
        got = put_field(out, field, value);
        if (got != DONE)
            return got;
    }
    return DONE;
}

static int put_fields(Buffer *out, const Fields *fields, int is_union, const Value *values)
{
    for (Py_ssize_t i = 0; i < fields->count; i++) {
        const Field *field = &fields->fields[i];
        const Value *value = &values[field->index];
        int got;

        if (value->kind == VALUE_UNCHANGED || (value->kind == VALUE_NULL && !is_union))
            return NOT_MINE;
        if (is_union &&
            put_bytes(out, value->kind == VALUE_NULL ? "\x00" : "\x02", 1) != DONE)
            return FAILED;
        if (value->kind == VALUE_NULL)
            continue;
        got = put_field(out, field, value);
        if (got != DONE)
            return got;
    }
    return DONE;
}

int put_key(Buffer *out, const Group *group, const Value *values)
{
    return put_fields(out, &group->key, group->key_is_union, values);
}

/* The hash of the canonical form of the key, or of what stands for it; `out` is as before. */
int hash_key(Buffer *out, const Group *group, const Value *values, uint32_t *hash)
{
    size_t start = out->size;

    for (Py_ssize_t i = 0; i < group->canonical.count; i++) {
        const Field *field = &group->canonical.fields[i];
        const Value *value = &values[field->index];
        int got;

        if (value->kind == VALUE_UNCHANGED)
            return NOT_MINE;
        got = value->kind == VALUE_NULL
                  ? put_bytes(out, "\xff\xff\xff\xff", 4)
                  : encode_canonical(out, field->code, value->text, value->size);
        if (got != DONE)
            return got;
    }
    *hash = crc_of(out->data + start, out->size - start);
    out->size = start;
    return DONE;
}

static int put_unchanged(Buffer *out, const Group *group, const Value *values)
{
    int64_t count = 0;

    for (Py_ssize_t i = 0; values != NULL && i < group->row.count; i++)
        count += values[group->row.fields[i].index].kind == VALUE_UNCHANGED;
    if (count > 0 && put_long(out, count) != DONE)
        return FAILED;
    for (Py_ssize_t i = 0; count > 0 && i < group->row.count; i++) {
        char *name;
        Py_ssize_t size;

        if (values[group->row.fields[i].index].kind != VALUE_UNCHANGED)
            continue;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(group->names, i), &name, &size) < 0 ||
            put_bytes(out, name, (size_t)size) != DONE)
            return FAILED;
    }
    return put_bytes(out, "\x00", 1);
}

/* Steals the reference to `item`; NULL stands for a failure before. */
static int put_item(PyObject *list, Py_ssize_t *at, PyObject *item)
{
    return item == NULL ? FAILED : PyList_SetItem(list, (*at)++, item);
}

static PyObject *text_header(PyObject *name, const char *text, int size)
{
    return pair_of(name, PyBytes_FromStringAndSize(text, size));
}

/* A number that is not negative. By hand, as below: printf would be a tenth of a row's cost. */
static PyObject *number_header(PyObject *name, int64_t number)
{
    char text[20], *first = text + sizeof text;

    do {
        *--first = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return text_header(name, first, (int)(text + sizeof text - first));
}

static PyObject *position_header(PyObject *name, int64_t lsn)
{
    char text[17];
    int at = 0;

    for (int shift = 60; shift >= 0; shift -= 4) {
        text[at++] = "0123456789ABCDEF"[(uint64_t)lsn >> shift & 15];
        if (shift == 32)
            text[at++] = '/';
    }
    return text_header(name, text, at);
}

/* Make those of a transaction without origin and gid; they are let go of by `end_of_headers`. */
int begin_headers(Shared *shared, int64_t commit_lsn, int64_t xid)
{
    memcpy(shared->headers, constants, sizeof constants);
    shared->headers[HEADER_COMMIT_LSN] = position_header(names[HEADER_COMMIT_LSN], commit_lsn);
    shared->headers[HEADER_XID] = number_header(names[HEADER_XID], xid);
    shared->header_count = 0;
    for (int i = 0; i < HEADERS; i++)
        shared->header_count += shared->headers[i] != NULL;
    return shared->headers[HEADER_COMMIT_LSN] && shared->headers[HEADER_XID] ? DONE : FAILED;
}

void end_of_headers(Shared *shared)
{
    Py_CLEAR(shared->headers[HEADER_COMMIT_LSN]);
    Py_CLEAR(shared->headers[HEADER_XID]);
}

/* As gateway.envelope.headers.HeaderMaker makes them; `op` is a header. */
static PyObject *headers_with(const Shared *shared, int64_t lsn, int64_t seq, PyObject *op,
                              int rekey)
{
    PyObject *list = PyList_New(shared->header_count + 3 + (rekey != 0));
    Py_ssize_t at = 0;
    int failed = list == NULL;

#pragma GCC unroll 32 /* then nothing is compared, as if each header stood here by itself */
    for (int i = 0; i < HEADERS; i++) {
        if (failed)
            break;
        if (i == HEADER_LSN)
            failed = put_item(list, &at, position_header(names[i], lsn));
        else if (i == HEADER_SEQ)
            failed = put_item(list, &at, number_header(names[i], seq));
        else if (i == HEADER_OP)
            failed = put_item(list, &at, shared_item(op));
        else if (i == HEADER_REKEY && rekey)
            failed = put_item(list, &at, shared_item(rekey_headers[rekey - 1]));
        else if (shared->headers[i] != NULL)
            failed = put_item(list, &at, shared_item(shared->headers[i]));
    }
    if (failed)
        Py_CLEAR(list);
    return list;
}

static PyObject *headers_of(const Work *work, int op, int64_t seq, int rekey)
{
    PyObject *op_header = op_headers[op == OP_INSERTED ? 0 : op == OP_UPDATED ? 1 : 2];

    return headers_with(work->shared, work->lsn, seq, op_header, rekey);
}

PyObject *end_headers(const Shared *shared, int64_t commit_lsn, int64_t seq)
{
    return headers_with(shared, commit_lsn, seq, end_header, 0);
}

/* The envelope, as gateway.envelope.envelope.EnvelopeEncoder.value joins it. */
static int put_body(Work *work, const Group *group, int op, const Value *before, int full,
                    const Value *after, int64_t seq)
{
    const Shared *shared = work->shared;
    const uint8_t *common = shared->encoded.data;
    Buffer *out = &work->scratch;
    uint8_t letter[2] = {2, (uint8_t)op};
    int got;

    if (put_bytes(out, before == NULL ? "\x00" : "\x02", 1) != DONE)
        return FAILED;
    if (before != NULL &&
        (got = put_row(out, &group->row, before, full ? OLD_ROW : OLD_KEY)) != DONE)
        return got;
    if (put_bytes(out, after == NULL ? "\x00" : "\x02", 1) != DONE)
        return FAILED;
    if (after != NULL && (got = put_row(out, &group->row, after, NEW_ROW)) != DONE)
        return got;
    if (put_bytes(out, shared->gateway_part, (size_t)shared->gateway_size) != DONE ||
        put_bytes(out, group->table_part, (size_t)group->table_part_size) != DONE ||
        put_bytes(out, common, shared->transaction_end) != DONE ||
        put_long(out, work->lsn) != DONE || put_long(out, seq) != DONE ||
        put_bytes(out, common + shared->transaction_end,
                  shared->id_end - shared->transaction_end) != DONE ||
        put_long(out, work->total_order) != DONE || put_long(out, group->order) != DONE ||
        put_bytes(out, letter, 2) != DONE ||
        put_bytes(out, common + shared->id_end, shared->encoded.size - shared->id_end) != DONE)
        return FAILED;
    return put_unchanged(out, group, after);
}

/* Encode one record, as gateway.routing.row.projection_route.ProjectionRoute.draft. */
int draft(Work *work, const Group *group, int op, const Value *keyed, const Value *before,
                 int full, const Value *after, int64_t seq, int rekey, Drafts *to)
{
    Draft *made = &to->items[to->count];
    Buffer *out = &work->scratch;
    int got;

    /* Not encoded to find out that it does not fit: the interpreted path looks at lengths first. */
    if (group->surely_fits < 0 || work->frame_size > 2 * (size_t)group->surely_fits)
        return NOT_MINE;
    if (group->needs_full && op != OP_INSERTED && !full)
        return NOT_MINE;
    memset(made, 0, sizeof *made);
    made->has_key = group->has_key;
    made->has_tombstone = op == OP_DELETED && group->tombstones;
    made->key_at = out->size;
    if (group->has_key && (got = put_key(out, group, keyed)) != DONE)
        return got;
    made->key_size = out->size - made->key_at;
    if (group->is_spread && (got = hash_key(out, group, keyed, &made->hash)) != DONE)
        return got;
    made->body_at = out->size;
    if ((got = put_body(work, group, op, before, full, after, seq)) != DONE)
        return got;
    made->body_size = out->size - made->body_at;
    if (made->body_size > (size_t)group->surely_fits ||
        made->key_size > (size_t)group->surely_fits)
        return NOT_MINE;
    made->headers = headers_of(work, op, seq, rekey);
    if (made->headers == NULL)
        return FAILED;
    to->count++;
    return DONE;
}

/* Whether an UPDATE leaves the row in its place: the bytes of its key, by default. */
static int same_place(Work *work, const Group *group, int *same)
{
    const Fields *place = group->has_place ? &group->place : &group->key;
    int is_union = group->has_place || group->key_is_union;
    Buffer *out = &work->scratch;
    size_t start = out->size, middle;
    int got = put_fields(out, place, is_union, work->old_values);

    middle = out->size;
    if (got == DONE)
        got = put_fields(out, place, is_union, work->new_values);
    if (got == DONE)
        *same = middle - start == out->size - middle &&
                (middle == start ||
                 memcmp(out->data + start, out->data + middle, middle - start) == 0);
    out->size = start;
    return got;
}

/* As gateway.routing.row.projection_route.ProjectionRoute.draft_update. */
int draft_update(Work *work, const Group *group, int action, int has_old, int full,
                        Drafts *to)
{
    const Value *old = work->old_values, *new = work->new_values;
    int same = 1, got;

    to->count = 0;
    if (action == DELETE)
        return draft(work, group, OP_DELETED, old, old, full, NULL, work->seq, 0, to);
    if (action == INSERT) /* with a value that was not sent, it is counted as lost */
        return has_unchanged(&work->table, new)
                   ? NOT_MINE
                   : draft(work, group, OP_INSERTED, new, NULL, 0, new, work->seq, 0, to);
    if (!has_old)
        return draft(work, group, OP_UPDATED, new, NULL, 0, new, work->seq, 0, to);
    if ((group->has_key || group->has_place) &&
        (got = same_place(work, group, &same)) != DONE)
        return got;
    if (same)
        return draft(work, group, OP_UPDATED, new, old, full, new, work->seq, 0, to);
    if (group->names_keys)
        return NOT_MINE;
    got = draft(work, group, OP_DELETED, old, old, full, NULL, work->seq - 1, 1, to);
    if (got != DONE)
        return got;
    return draft(work, group, OP_INSERTED, new, old, full, new, work->seq, 2, to);
}
