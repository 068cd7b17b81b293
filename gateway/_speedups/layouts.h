/* Tuples that Python hands over: their fields have the names of gateway/_speedups/layouts.py. */
#ifndef PGSLUICE_LAYOUTS_H
#define PGSLUICE_LAYOUTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "declared.h"

/* Whether it is a tuple with `size` fields; sets an exception where it is not. */
static inline int has_layout(PyObject *from, Py_ssize_t size, const char *what)
{
    if (PyTuple_Check(from) && PyTuple_Size(from) == size)
        return 1;
    PyErr_Format(PyExc_TypeError, "a %s is not a tuple of %zd", what, size);
    return 0;
}

#endif
