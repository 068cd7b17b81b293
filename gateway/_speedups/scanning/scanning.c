/* Finds short transactions that stand whole, one after the other, among the frames of the stream.
 *
 * Why: interpreted, the Begin and the Commit of a transaction cost more than its row. What is
 * assumed: nothing of the bytes. Short is a transaction of a few changes, row changes alone, whose
 * Commit is what its Begin has announced; everything else is left to gateway.transactions.assembler,
 * which is the reference and says what is wrong where something is.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#include "../frames.h"
#include "declared.h"

/* Limits of a short transaction: small enough that its records fit into a piece of the record
 * buffer, more or less, also where many subscriptions receive it. */
enum { MOST_CHANGES = 16, MOST_BYTES = 16384 };

typedef struct {
    const char *data;
    Py_ssize_t size;
} Frame;

/* -1: it is no frame, with an exception set. */
static int read_frame(PyObject *frames, Py_ssize_t place, Frame *frame)
{
    char *start;

    if (PyBytes_AsStringAndSize(PyList_GetItem(frames, place), &start, &frame->size) < 0)
        return -1;
    frame->data = start;
    return 0;
}

static int is_begin(const Frame *frame)
{
    return frame->size == BEGIN_SIZE && frame->data[0] == FRAME_XLOGDATA &&
           frame->data[TAG_AT] == TAG_BEGIN;
}

static int is_change(const Frame *frame)
{
    return frame->size > TAG_AT && frame->data[0] == FRAME_XLOGDATA &&
           (frame->data[TAG_AT] == TAG_INSERT || frame->data[TAG_AT] == TAG_UPDATE ||
            frame->data[TAG_AT] == TAG_DELETE);
}

/* Whether it is the Commit that `begin` has announced: the same position, the same time, no flags.
 */
static int is_commit_of(const Frame *frame, const Frame *begin)
{
    return frame->size == COMMIT_SIZE && frame->data[0] == FRAME_XLOGDATA &&
           frame->data[TAG_AT] == TAG_COMMIT &&
           frame->data[TAG_AT + 1] == 0 &&
           memcmp(frame->data + TAG_AT + 2, begin->data + TAG_AT + 1, 8) == 0 &&
           memcmp(frame->data + TAG_AT + 18, begin->data + TAG_AT + 9, 8) == 0;
}

/* Return the place after the short transaction that begins at `place`; `place` if none does. */
static Py_ssize_t end_of(PyObject *frames, Py_ssize_t place, Py_ssize_t *bytes)
{
    Py_ssize_t size = 0, count = PyList_Size(frames);
    Frame begin, frame;

    if (read_frame(frames, place, &begin) < 0)
        return -1;
    if (!is_begin(&begin))
        return place;
    for (Py_ssize_t at = place + 1; at < count && at - place <= MOST_CHANGES + 1; at++) {
        if (read_frame(frames, at, &frame) < 0)
            return -1;
        size += frame.size;
        if (at - place > 1 && is_commit_of(&frame, &begin)) {
            *bytes += begin.size + size;
            return at + 1;
        }
        if (!is_change(&frame) || size > MOST_BYTES)
            return place;
    }
    return place;
}

PyDoc_STRVAR(scan_doc, "scan(frames, place) -> (place, transactions, bytes)");

static PyObject *scan(PyObject *module, PyObject *arguments)
{
    PyObject *frames;
    Py_ssize_t place, found = 0, bytes = 0;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!n", &PyList_Type, &frames, &place))
        return NULL;
    if (place < 0) {
        PyErr_SetString(PyExc_ValueError, "there is no such place");
        return NULL;
    }
    while (place < PyList_Size(frames)) {
        Py_ssize_t end = end_of(frames, place, &bytes);

        if (end < 0)
            return NULL;
        if (end == place)
            break;
        place = end;
        found++;
    }
    return Py_BuildValue("(nnn)", place, found, bytes);
}

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS, scan_doc},
    {NULL, NULL, 0, NULL},
};

static const char module_doc[] =
    "Short transactions among the frames of the stream.\n\n"
    "Why: interpreted, what opens and closes a transaction costs more than its row.\n"
    "Assumes: nothing of the bytes.\n"
    "Equals: gateway.transactions.assembler, which assembles what is left.";

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_scanning",
    .m_doc = module_doc,
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__scanning(void)
{
    PyObject *module = PyModule_Create(&definition);

    if (module != NULL && PyModule_AddStringConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    return module;
}
