/* The compiled row path: gateway.routing.row.relation_route and gateway.routing.row.projection_route
 * for rows without anything unusual.
 *
 * Why: interpreted, a row costs some fifteen microseconds, most of it Python's own. What is assumed:
 * nothing of the bytes; every length is checked. Whatever is unusual about a change (a text that
 * needs more than a glance, a value in binary format, an error) is "not mine": the change has left
 * no trace then, and the interpreted path, which is the reference, routes it or says what is wrong
 * with it. Filters that compare columns with constants are tables (conditions.c); all others are the
 * same Python functions in both. The two give equal records
 * (tests/unit/routing, tests/property/test_compiled_rows.py, tools/fuzz_rows.py).
 */
#include "copy.h"
#include "series.h"

#include <string.h>

static void rows_dealloc(PyObject *self)
{
    Work *work = &((Rows *)self)->work;
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    work_forget(work);
    buffer_free(&work->scratch);
    buffer_free(&work->unescaped);
    buffer_free(&((Rows *)self)->shared.encoded);
    PyMem_Free(work->old_values);
    PyMem_Free(work->new_values);
    PyMem_Free(work->found.items);
    PyMem_Free(work->before.items);
    PyMem_Free(work->made.items);
    PyMem_Free(work->counted.items);
    table_free(&work->table);
    release(self);
    Py_DECREF(type);
}

static PyObject *rows_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self;
    Work *work;
    size_t width;

    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Rows takes no keywords");
        return NULL;
    }
    self = allocate(type, 0); /* all zero */
    if (self == NULL)
        return NULL;
    work = &((Rows *)self)->work;
    if (table_read(&work->table, arguments) != DONE) {
        Py_DECREF(self);
        return NULL;
    }
    width = work->table.columns > 0 ? (size_t)work->table.columns : 1;
    work->old_values = PyMem_Calloc(width, sizeof *work->old_values);
    work->new_values = PyMem_Calloc(width, sizeof *work->new_values);
    if (work->old_values == NULL || work->new_values == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return self;
}

static int is_mine(const Table *table, const uint8_t *frame, size_t size, size_t at)
{
    if (size < at + 5 || (frame[TAG_AT] != TAG_INSERT && frame[TAG_AT] != TAG_UPDATE &&
                          frame[TAG_AT] != TAG_DELETE))
        return 0;
    if (frame[1] & 0x80) /* an LSN that Avro's long does not hold */
        return 0;
    return ((uint32_t)frame[at] << 24 | (uint32_t)frame[at + 1] << 16 |
            (uint32_t)frame[at + 2] << 8 | frame[at + 3]) == table->oid;
}

/* Route frames from `*place` on, until the first that is not mine, or until there are `enough`
 * records or `most_bytes` of their values. */
static int run(Work *work, PyObject *frames, Py_ssize_t *place, size_t at, Py_ssize_t enough,
               size_t most_bytes, PyObject *out)
{
    size_t bytes = 0;

    while (*place < PyList_Size(frames)) {
        PyObject *frame = PyList_GetItem(frames, *place);
        int64_t seq = work->seq, total_order = work->total_order;
        Py_ssize_t size;
        const uint8_t *data;
        int got;

        if (!PyBytes_Check(frame))
            return DONE;
        if (read_bytes(frame, &data, &size) != DONE)
            return FAILED;
        if (!is_mine(&work->table, data, (size_t)size, at))
            return DONE;
        work->lsn = int64_at(data + 1);
        for (Py_ssize_t g = 0; g < work->table.group_count; g++)
            work->table.groups[g].order++;
        Py_INCREF(frame);
        got = route_change(work, data, (size_t)size, at);
        Py_DECREF(frame);
        if (got == DONE)
            got = hand_over(work, out, &bytes);
        if (got != DONE) {
            work_forget(work);
            work->seq = seq;
            work->total_order = total_order;
            return got == NOT_MINE ? DONE : FAILED;
        }
        ++*place;
        if (PyList_Size(out) >= enough || bytes >= most_bytes)
            break;
    }
    return DONE;
}

PyDoc_STRVAR(run_doc,
             "run(frames, place, at, shared, seq, total_order, orders, enough, most_bytes, out, "
             "touched) -> (place, seq)");

static PyObject *rows_run(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Rows *rows = (Rows *)self;
    Work *work = &rows->work;
    enum { FRAMES, PLACE, AT, SHARED, SEQ, TOTAL_ORDER, ORDERS, ENOUGH, MOST_BYTES, OUT, TOUCHED,
           RUN_ARGUMENTS };
    PyObject *frames, *orders, *out, *touched;
    Py_ssize_t place, at, enough, most_bytes;
    int got;

    if (count != RUN_ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "run takes %d arguments", RUN_ARGUMENTS);
        return NULL;
    }
    if (rows->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "run was called from within");
        return NULL;
    }
    frames = arguments[FRAMES];
    orders = arguments[ORDERS];
    out = arguments[OUT];
    touched = arguments[TOUCHED];
    if (!PyList_Check(frames) || !PyTuple_Check(orders) || !PyList_Check(out) ||
        !PyList_Check(touched) || PyTuple_Size(orders) != work->table.group_count) {
        PyErr_SetString(PyExc_TypeError, "run wants lists, and an order for each group");
        return NULL;
    }
    place = PyLong_AsSsize_t(arguments[PLACE]);
    at = PyLong_AsSsize_t(arguments[AT]);
    work->seq = PyLong_AsLongLong(arguments[SEQ]);
    work->total_order = PyLong_AsLongLong(arguments[TOTAL_ORDER]);
    enough = PyLong_AsSsize_t(arguments[ENOUGH]);
    most_bytes = PyLong_AsSsize_t(arguments[MOST_BYTES]);
    for (Py_ssize_t i = 0; !PyErr_Occurred() && i < work->table.group_count; i++)
        work->table.groups[i].order = PyLong_AsLongLong(PyTuple_GetItem(orders, i));
    if (PyErr_Occurred())
        return NULL;
    if (place < 0 || most_bytes < 0 || at <= TAG_AT || at > TAG_AT + 5) {
        PyErr_SetString(PyExc_ValueError, "there is no such place");
        return NULL;
    }
    if (read_shared(&rows->shared, arguments[SHARED]) != DONE)
        return NULL;
    work->shared = &rows->shared;
    rows->is_busy = 1;
    got = run(work, frames, &place, (size_t)at, enough, (size_t)most_bytes, out);
    if (got == DONE)
        got = report_counters(&work->counted, touched);
    rows->is_busy = 0;
    if (got != DONE)
        return NULL;
    return Py_BuildValue("(nL)", place, (long long)work->seq);
}

/* Make records of lines from `*place` on, until the first that is not mine. */
static int copy(Work *work, PyObject *lines, Py_ssize_t *place, PyObject *tails,
                PyObject *headers, PyObject *out)
{
    for (; *place < PyList_Size(lines); ++*place) {
        PyObject *line = PyList_GetItem(lines, *place);
        Py_ssize_t size;
        const uint8_t *data;
        int got;

        if (!PyBytes_Check(line))
            return DONE;
        if (read_bytes(line, &data, &size) != DONE)
            return FAILED;
        Py_INCREF(line);
        got = copy_row(work, data, (size_t)size, tails, headers);
        Py_DECREF(line);
        if (got == DONE)
            got = hand_over(work, out, NULL);
        if (got != DONE) {
            work_forget(work);
            return got == NOT_MINE ? DONE : FAILED;
        }
    }
    return DONE;
}

PyDoc_STRVAR(copy_doc, "copy(lines, place, tails, headers, out, touched) -> place");

static PyObject *rows_copy(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Rows *rows = (Rows *)self;
    Work *work = &rows->work;
    enum { LINES, PLACE, TAILS, HEADER_LIST, OUT, TOUCHED, COPY_ARGUMENTS };
    PyObject *lines, *tails, *headers, *out, *touched;
    Py_ssize_t place;
    int got;

    if (count != COPY_ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "copy takes %d arguments", COPY_ARGUMENTS);
        return NULL;
    }
    if (rows->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "copy was called from within");
        return NULL;
    }
    lines = arguments[LINES];
    tails = arguments[TAILS];
    headers = arguments[HEADER_LIST];
    out = arguments[OUT];
    touched = arguments[TOUCHED];
    if (!PyList_Check(lines) || !PyTuple_Check(tails) || !PyList_Check(headers) ||
        !PyList_Check(out) || !PyList_Check(touched) ||
        PyTuple_Size(tails) != work->table.group_count) {
        PyErr_SetString(PyExc_TypeError, "copy wants lists, and a tail for each group");
        return NULL;
    }
    place = PyLong_AsSsize_t(arguments[PLACE]);
    if (PyErr_Occurred())
        return NULL;
    if (place < 0) {
        PyErr_SetString(PyExc_ValueError, "there is no such place");
        return NULL;
    }
    rows->is_busy = 1;
    got = copy(work, lines, &place, tails, headers, out);
    if (got == DONE)
        got = report_counters(&work->counted, touched);
    rows->is_busy = 0;
    return got == DONE ? PyLong_FromSsize_t(place) : NULL;
}

static PyMethodDef rows_methods[] = {
    {"run", (PyCFunction)(void (*)(void))rows_run, METH_FASTCALL, run_doc},
    {"copy", (PyCFunction)(void (*)(void))rows_copy, METH_FASTCALL, copy_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_new, rows_new},
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_methods, rows_methods},
    {0, NULL},
};

static PyType_Spec rows_spec = {
    .name = "gateway._speedups._rows.Rows",
    .basicsize = sizeof(Rows),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = rows_slots,
};

static const char module_doc[] =
    "From frames of the stream, and lines of COPY, to records: the compiled row path.\n\n"
    "Why: interpreted, a row costs some fifteen microseconds, compiled about one.\n"
    "Assumes: nothing of the bytes; what is unusual about a change is left alone.\n"
    "Equals: gateway.routing.row.relation_route and gateway.routing.row.projection_route, which\
"
    "route what is left.";

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_rows",
    .m_doc = module_doc,
    .m_size = -1,
};

static int add_named(PyObject *module, const char *name, const Named *named)
{
    PyObject *codes = PyDict_New();
    int got = codes == NULL ? -1 : 0;

    for (; got == 0 && named->name != NULL; named++) {
        PyObject *code = PyLong_FromLong(named->code);

        got = code == NULL ? -1 : PyDict_SetItemString(codes, named->name, code);
        Py_XDECREF(code);
    }
    if (got == 0)
        got = PyModule_AddObjectRef(module, name, codes);
    Py_XDECREF(codes);
    return got;
}

PyMODINIT_FUNC PyInit__rows(void)
{
    PyObject *module, *type = NULL, *series = NULL;

    if (names_make() != DONE || count_names_make() != DONE)
        return NULL;
    module = PyModule_Create(&module_definition);
    if (module != NULL) {
        type = PyType_FromSpec(&rows_spec);
        series = type == NULL ? NULL : series_type(type);
    }
    if (series == NULL || PyModule_AddObjectRef(module, "Rows", type) < 0 ||
        PyModule_AddObjectRef(module, "Series", series) < 0 ||
        add_named(module, "CONVERSIONS", conversions) < 0 ||
        add_named(module, "KEY_FORMS", key_forms) < 0 ||
        PyModule_AddStringConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    Py_XDECREF(series);
    return module;
}
