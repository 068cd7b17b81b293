/* Reads many lines of COPY in one call, from psycopg's connection.
 *
 * Why: one call and one wait for each line cost most of what reading a table costs, and each takes
 * the interpreter's lock from whoever routes rows meanwhile. Here the lock is free until some
 * thousand lines are there. The connection is psycopg's (`pgconn_ptr`), and so is everything else
 * about it; the functions are those of the libpq that psycopg has loaded.
 */
#include "../library.h"

#include <poll.h>

typedef struct pg_conn PGconn;

static struct {
    int (*get_copy_data)(PGconn *conn, char **line, int async);
    int (*consume_input)(PGconn *conn);
    int (*socket)(const PGconn *conn);
    void (*freemem)(void *line);
} libpq;

enum { FAILED = -1, END = 0, MORE = 1 };

typedef struct {
    char *text;
    int size;
} Line;

/* Wait until something has come; -1: the connection is gone, 0: nothing has. */
static int receive(PGconn *conn, int wait_ms)
{
    struct pollfd edge = {.fd = libpq.socket(conn), .events = POLLIN};

    if (edge.fd < 0)
        return -1;
    if (wait_ms > 0 && poll(&edge, 1, wait_ms) <= 0)
        return 0;
    return libpq.consume_input(conn) ? 1 : -1;
}

/* Receive lines until there are `most`, or `bytes` of them, or none comes in time; without the GIL. */
static int receive_lines(PGconn *conn, Line *lines, Py_ssize_t most, Py_ssize_t bytes, int wait_ms,
                         Py_ssize_t *count)
{
    int tried = 0;

    while (*count < most && bytes > 0) {
        Line *line = &lines[*count];
        int got;

        line->text = NULL;
        line->size = libpq.get_copy_data(conn, &line->text, 1);
        if (line->size == -1)
            return END;
        if (line->size < 0)
            return FAILED;
        if (line->size > 0) {
            bytes -= line->size;
            ++*count;
            tried = 0;
            continue;
        }
        /* First what has come already: TLS may have read more than the socket shows. */
        got = receive(conn, tried ? wait_ms : 0);
        if (got < 0)
            return FAILED;
        if (got == 0)
            break;
        tried = 1;
    }
    return MORE;
}

PyDoc_STRVAR(read_doc, "read(pgconn_ptr, lines, most, bytes, wait_ms) -> -1 failed, 0 end, 1 more");

static PyObject *read_lines(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    enum { PGCONN_PTR, LINES, MOST, BYTES, WAIT_MS, READ_ARGUMENTS };
    PyObject *out;
    PGconn *conn;
    Py_ssize_t most, bytes, received = 0;
    Line *lines;
    int wait_ms, state, failed = 0;

    (void)module;
    if (count != READ_ARGUMENTS || !PyList_Check(arguments[LINES])) {
        PyErr_SetString(PyExc_TypeError, "read takes a connection, a list and three numbers");
        return NULL;
    }
    conn = PyLong_AsVoidPtr(arguments[PGCONN_PTR]);
    out = arguments[LINES];
    most = PyLong_AsSsize_t(arguments[MOST]);
    bytes = PyLong_AsSsize_t(arguments[BYTES]);
    wait_ms = (int)PyLong_AsLong(arguments[WAIT_MS]);
    if (PyErr_Occurred())
        return NULL;
    if (conn == NULL || libpq.freemem == NULL || most <= 0 || most > 1 << 20) {
        PyErr_SetString(PyExc_ValueError, "there is nothing to read from");
        return NULL;
    }
    lines = PyMem_Malloc((size_t)most * sizeof *lines);
    if (lines == NULL)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    state = receive_lines(conn, lines, most, bytes, wait_ms, &received);
    Py_END_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < received; i++) {
        if (!failed) {
            PyObject *line = PyBytes_FromStringAndSize(lines[i].text, lines[i].size);

            failed = line == NULL || PyList_Append(out, line) < 0;
            Py_XDECREF(line);
        }
        libpq.freemem(lines[i].text);
    }
    PyMem_Free(lines);
    return failed ? NULL : PyLong_FromLong(state);
}

PyDoc_STRVAR(load_doc, "load(path) -> whether the library at path, which is loaded, has it all");

static PyObject *load(PyObject *module, PyObject *path)
{
    static const char *const names[] = {"PQgetCopyData", "PQconsumeInput", "PQsocket", "PQfreemem"};

    (void)module;
    _Static_assert(sizeof names == sizeof libpq, "a name for each function");
    return library_find(path, names, sizeof names / sizeof *names, &libpq);
}

static PyMethodDef functions[] = {
    {"load", load, METH_O, load_doc},
    {"read", (PyCFunction)(void (*)(void))read_lines, METH_FASTCALL, read_doc},
    {NULL, NULL, 0, NULL},
};

static const char module_doc[] =
    "Reads many lines of COPY from psycopg's connection in one call.\n\n"
    "Why: one call, and one wait, for each line cost most of what reading a table costs.\n"
    "Assumes: the libpq that psycopg has loaded, and that nobody else reads meanwhile.\n"
    "Equals: psycopg.Copy.read, which is called where this is not to be had.";

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_reading",
    .m_doc = module_doc,
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__reading(void)
{
    PyObject *module = PyModule_Create(&module_definition);

    if (module != NULL && PyModule_AddStringConstant(module, "INTERFACE", INTERFACE) < 0)
        Py_CLEAR(module);
    return module;
}
