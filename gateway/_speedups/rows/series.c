/* Short transactions as a whole: what gateway.routing.router does for each, for several in one call.
 *
 * A transaction of which a part is "not mine" leaves no trace, and the call ends before it.
 */
#include "series.h"

#include <string.h>

/* Relations of one call, and changes of one transaction, which can all be of other relations: a call
 * ends where another transaction might not find room. */
enum { MOST_VISITS = 64, MOST_CHANGES = 32 };
_Static_assert(2 * MOST_CHANGES <= MOST_VISITS, "a call has room for two transactions");

#define EPOCH_SHIFT_US INT64_C(946684800000000)

/* A relation that has rows in this call. */
typedef struct {
    Rows *rows; /* held */
    Py_ssize_t changes, before; /* in the call, and when the transaction at hand began */
} Visit;

typedef struct {
    PyObject ob_base;
    PyObject *kept, *gateway_part;
    Feeds feeds;
    Shared shared;
    Visit visits[MOST_VISITS];
    int visit_count;
    int is_busy;
} Series;

/* A call ends after the transaction with which there are `enough` records, or `bytes` of values. One
 * that could become more than `records` or `bytes` by itself is not mine, nor one with a change
 * before `least_lsn`. */
typedef struct {
    int64_t least_lsn;
    Py_ssize_t enough, records, bytes;
} Bounds;

static PyObject *rows_class;

int64_t int64_at(const uint8_t *data)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value = value << 8 | data[i];
    return (int64_t)value;
}

static uint32_t uint32_at(const uint8_t *data)
{
    return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

static void series_dealloc(PyObject *self)
{
    Series *series = (Series *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    feeds_free(&series->feeds);
    buffer_free(&series->shared.encoded);
    Py_XDECREF(series->kept);
    release(self);
    Py_DECREF(type);
}

static PyObject *series_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self, *feeds;
    Series *series;

    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Series takes no keywords");
        return NULL;
    }
    self = allocate(type, 0); /* all zero */
    if (self == NULL)
        return NULL;
    series = (Series *)self;
    Py_INCREF(arguments);
    series->kept = arguments;
    if (!PyArg_ParseTuple(arguments, "SO!", &series->gateway_part, &PyTuple_Type, &feeds) ||
        feeds_read(&series->feeds, feeds) != DONE ||
        read_bytes(series->gateway_part, &series->shared.gateway_part,
                   &series->shared.gateway_size) != DONE) {
        Py_DECREF(self);
        return NULL;
    }
    return self;
}

/* The relation of a change; NULL: it is not there, with or without an exception. */
static Visit *visit(Series *series, PyObject *rows_of, uint32_t oid)
{
    Visit *made;
    PyObject *rows;

    for (int i = series->visit_count - 1; i >= 0; i--)
        if (series->visits[i].rows->work.table.oid == oid)
            return &series->visits[i];
    rows = PyObject_CallFunction(rows_of, "I", oid);
    if (rows == NULL)
        return NULL;
    if (rows == Py_None) {
        Py_DECREF(rows);
        return NULL;
    }
    if (!PyObject_TypeCheck(rows, (PyTypeObject *)rows_class) ||
        ((Rows *)rows)->work.table.oid != oid) {
        PyErr_SetString(PyExc_TypeError, "these are not the rows that were asked for");
        Py_DECREF(rows);
        return NULL;
    }
    made = &series->visits[series->visit_count++];
    *made = (Visit){(Rows *)rows, 0, 0};
    return made;
}

/* Begin to number the rows of a relation in the transaction at hand. */
static int enter(Series *series, Visit *to)
{
    Table *table = &to->rows->work.table;

    for (int i = 0; i < series->visit_count; i++) {
        const Visit *other = &series->visits[i];

        if (other != to && other->changes > other->before &&
            !(table->is_alone && other->rows->work.table.is_alone))
            return NOT_MINE;
    }
    for (Py_ssize_t g = 0; g < table->group_count; g++)
        table->groups[g].order = 0;
    to->rows->work.shared = &series->shared;
    return DONE;
}

static int route(Series *series, PyObject *rows_of, const uint8_t *frame, size_t size, Ending *tx,
                 PyObject *out, size_t *bytes)
{
    Visit *to;
    Work *work;
    int got = DONE;

    if (size < TAG_AT + 5 || frame[1] & 0x80)
        return NOT_MINE;
    to = visit(series, rows_of, uint32_at(frame + TAG_AT + 1));
    if (to == NULL)
        return PyErr_Occurred() ? FAILED : NOT_MINE;
    if (to->changes == to->before)
        got = enter(series, to);
    if (got != DONE)
        return got;
    to->changes++;
    work = &to->rows->work;
    work->lsn = int64_at(frame + 1);
    work->seq = tx->seq;
    work->total_order = tx->total_order;
    for (Py_ssize_t g = 0; g < work->table.group_count; g++)
        work->table.groups[g].order++;
    got = route_change(work, frame, size, TAG_AT + 1);
    if (got == DONE)
        got = hand_over(work, out, bytes);
    tx->seq = work->seq;
    tx->total_order = work->total_order;
    return got;
}

static int is_frame(PyObject *item, const uint8_t **data, Py_ssize_t *size)
{
    return PyBytes_Check(item) && read_bytes(item, data, size) == DONE && *size > TAG_AT &&
           (*data)[0] == FRAME_XLOGDATA;
}

/* Read Begin and Commit, and make what all records share; `*end` is the place of the Commit. */
static int open_transaction(Series *series, PyObject *frames, Py_ssize_t place, int64_t ts_ms,
                            const Bounds *bounds, Ending *tx, Py_ssize_t *end)
{
    Shared *shared = &series->shared;
    const uint8_t *data;
    Py_ssize_t size, feeds = series->feeds.count, whole = 0;
    int64_t commit_time;

    if (!is_frame(PyList_GetItem(frames, place), &data, &size) || size != BEGIN_SIZE ||
        data[TAG_AT] != TAG_BEGIN || data[TAG_AT + 1] & 0x80)
        return NOT_MINE;
    tx->commit_lsn = int64_at(data + TAG_AT + 1);
    commit_time = int64_at(data + TAG_AT + 9);
    tx->xid = uint32_at(data + TAG_AT + 17);
    for (*end = place + 1; *end < PyList_Size(frames) && *end - place <= MOST_CHANGES; ++*end) {
        if (!is_frame(PyList_GetItem(frames, *end), &data, &size))
            return NOT_MINE;
        if (data[TAG_AT] == TAG_COMMIT)
            break;
        if (data[TAG_AT] != TAG_INSERT && data[TAG_AT] != TAG_UPDATE && data[TAG_AT] != TAG_DELETE)
            return NOT_MINE;
        if (int64_at(data + 1) < bounds->least_lsn)
            return NOT_MINE;
        whole += size;
        /* If all targets accept it, it is to be split: see gateway.routing.row.record_buffer. */
        if (*end - place > 1 && ((*end - place) * feeds > bounds->records ||
                                 whole > bounds->bytes / (feeds > 0 ? feeds : 1)))
            return NOT_MINE;
    }
    if (*end == PyList_Size(frames) || size != COMMIT_SIZE || data[TAG_AT] != TAG_COMMIT ||
        data[TAG_AT + 10] & 0x80 || commit_time < -EPOCH_SHIFT_US ||
        commit_time > INT64_MAX - EPOCH_SHIFT_US)
        return NOT_MINE;
    tx->end_lsn = int64_at(data + TAG_AT + 10);
    tx->commit_us = commit_time + EPOCH_SHIFT_US;
    if (begin_headers(shared, tx->commit_lsn, tx->xid) != DONE)
        return FAILED;
    return encode_shared(shared, tx->xid, tx->commit_lsn, tx->commit_us / 1000, Py_None, ts_ms);
}

/* Make as if the transaction at hand had not been looked at. */
static void undo(Series *series)
{
    TargetList *touched = &series->feeds.touched;

    for (int i = 0; i < series->visit_count; i++) {
        Visit *visited = &series->visits[i];
        Work *work = &visited->rows->work;

        work_forget(work);
        for (size_t k = 0; k < work->counted.count; k++)
            memset(work->counted.items[k]->counts, 0, sizeof work->counted.items[k]->counts);
        work->counted.count = 0;
        visited->changes = visited->before;
    }
    for (size_t i = 0; i < touched->count; i++)
        memset(touched->items[i]->counts, 0, sizeof touched->items[i]->counts);
    touched->count = 0;
    series->feeds.share_count = 0;
}

static int close_transaction(Series *series, const Ending *tx, PyObject *out)
{
    for (int i = 0; i < series->visit_count; i++) {
        Visit *visited = &series->visits[i];

        if (visited->changes == visited->before)
            continue;
        if (touch(&series->feeds, &visited->rows->work.counted) != DONE)
            return FAILED;
        visited->rows->work.counted.count = 0;
        visited->before = visited->changes;
    }
    return put_ends(&series->feeds, tx, &series->shared, out);
}

/* Route the transaction whose Begin stands at `*place`; NOT_MINE: nothing has happened. */
static int route_transaction(Series *series, PyObject *frames, Py_ssize_t *place,
                             PyObject *rows_of, int64_t ts_ms, const Bounds *bounds,
                             PyObject *out, size_t *bytes)
{
    Ending tx = {0};
    Py_ssize_t end, records = PyList_Size(out);
    int got = open_transaction(series, frames, *place, ts_ms, bounds, &tx, &end);

    for (Py_ssize_t at = *place + 1; got == DONE && at < end; at++) {
        const uint8_t *data;
        Py_ssize_t size;

        if (is_frame(PyList_GetItem(frames, at), &data, &size))
            got = route(series, rows_of, data, (size_t)size, &tx, out, bytes);
        else
            got = NOT_MINE;
    }
    if (got == DONE)
        got = close_transaction(series, &tx, out);
    if (got == DONE) {
        *place = end + 1;
    } else {
        undo(series);
        if (PyList_SetSlice(out, records, PyList_Size(out), NULL) < 0)
            got = FAILED;
    }
    end_of_headers(&series->shared);
    return got;
}

/* Report what was counted, and release the relations. */
static int settle(Series *series, PyObject *ended, PyObject *changed)
{
    int got = report_ended(&series->feeds.ended);

    if (report_feeds(&series->feeds, ended) != DONE)
        got = FAILED;
    for (int i = 0; i < series->visit_count; i++) {
        Visit *visited = &series->visits[i];
        PyObject *pair = NULL;

        if (visited->changes > 0) {
            pair = Py_BuildValue("(In)", visited->rows->work.table.oid, visited->changes);
            if (pair == NULL || PyList_Append(changed, pair) < 0)
                got = FAILED;
            Py_XDECREF(pair);
        }
        Py_DECREF((PyObject *)visited->rows);
    }
    series->visit_count = 0;
    return got;
}

PyDoc_STRVAR(run_doc, "run(frames, place, rows_of, ts_ms, least_lsn, enough, most_records, most_bytes, "
                      "out, ended, changed) -> (place, transactions)");

static PyObject *series_run(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Series *series = (Series *)self;
    enum { FRAMES, PLACE, ROWS_OF, TS_MS, LEAST_LSN, ENOUGH, MOST_RECORDS, MOST_BYTES, OUT, ENDED,
           CHANGED, RUN_ARGUMENTS };
    PyObject *frames, *rows_of, *out, *ended, *changed, *type, *value, *traceback;
    Bounds bounds;
    Py_ssize_t place, routed = 0;
    size_t bytes = 0;
    long long ts_ms;
    int got = DONE;

    if (count != RUN_ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "run takes %d arguments", RUN_ARGUMENTS);
        return NULL;
    }
    if (series->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "run was called from within");
        return NULL;
    }
    frames = arguments[FRAMES];
    rows_of = arguments[ROWS_OF];
    out = arguments[OUT];
    ended = arguments[ENDED];
    changed = arguments[CHANGED];
    if (!PyList_Check(frames) || !PyList_Check(out) || !PyDict_Check(ended) ||
        !PyList_Check(changed)) {
        PyErr_SetString(PyExc_TypeError, "run wants lists, and a dict");
        return NULL;
    }
    place = PyLong_AsSsize_t(arguments[PLACE]);
    ts_ms = PyLong_AsLongLong(arguments[TS_MS]);
    bounds.least_lsn = PyLong_AsLongLong(arguments[LEAST_LSN]);
    bounds.enough = PyLong_AsSsize_t(arguments[ENOUGH]);
    bounds.records = PyLong_AsSsize_t(arguments[MOST_RECORDS]);
    bounds.bytes = PyLong_AsSsize_t(arguments[MOST_BYTES]);
    if (PyErr_Occurred())
        return NULL;
    if (place < 0) {
        PyErr_SetString(PyExc_ValueError, "there is no such place");
        return NULL;
    }
    series->is_busy = 1;
    while (place < PyList_Size(frames) && PyList_Size(out) < bounds.enough &&
           (Py_ssize_t)bytes < bounds.bytes &&
           series->visit_count + MOST_CHANGES <= MOST_VISITS) {
        got = route_transaction(series, frames, &place, rows_of, ts_ms, &bounds, out, &bytes);
        if (got != DONE)
            break;
        routed++;
    }
    PyErr_Fetch(&type, &value, &traceback);
    if (settle(series, ended, changed) != DONE)
        got = FAILED;
    if (type != NULL)
        PyErr_Restore(type, value, traceback); /* what went wrong first */
    series->is_busy = 0;
    if (got == FAILED)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    return Py_BuildValue("(nn)", place, routed);
}

PyDoc_STRVAR(end_doc, "end(counters, common, end_lsn, headers, out, ended)");

static PyObject *series_end(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Series *series = (Series *)self;
    enum { COUNTERS, COMMON, END_LSN, HEADER_LIST, OUT, ENDED, END_ARGUMENTS };
    int64_t end_lsn;
    int got;

    if (count != END_ARGUMENTS || !PyList_Check(arguments[COUNTERS]) ||
        !PyList_Check(arguments[HEADER_LIST]) || !PyList_Check(arguments[OUT]) ||
        !PyDict_Check(arguments[ENDED])) {
        PyErr_Format(PyExc_TypeError, "end takes %d arguments, three lists and a dict of them",
                     END_ARGUMENTS);
        return NULL;
    }
    if (series->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "end was called from within");
        return NULL;
    }
    end_lsn = PyLong_AsLongLong(arguments[END_LSN]);
    if (PyErr_Occurred())
        return NULL;
    series->is_busy = 1;
    got = put_counted_ends(&series->feeds, arguments[COUNTERS], arguments[COMMON], end_lsn,
                           arguments[HEADER_LIST], arguments[OUT]);
    series->feeds.share_count = 0;
    if (report_feeds(&series->feeds, arguments[ENDED]) != DONE)
        got = FAILED;
    series->is_busy = 0;
    if (got != DONE)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef series_methods[] = {
    {"end", (PyCFunction)(void (*)(void))series_end, METH_FASTCALL, end_doc},
    {"run", (PyCFunction)(void (*)(void))series_run, METH_FASTCALL, run_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot series_slots[] = {
    {Py_tp_new, series_new},
    {Py_tp_dealloc, series_dealloc},
    {Py_tp_methods, series_methods},
    {0, NULL},
};

static PyType_Spec series_spec = {
    .name = "gateway._speedups._rows.Series",
    .basicsize = sizeof(Series),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = series_slots,
};

PyObject *series_type(PyObject *rows_type)
{
    rows_class = rows_type;
    return PyType_FromSpec(&series_spec);
}
