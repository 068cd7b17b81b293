/* Functions of a library that the process has loaded already, by whoever owns it: psycopg has libpq,
 * confluent-kafka has librdkafka. Nothing is loaded here, so that there is one of each.
 */
#ifndef PGSLUICE_LIBRARY_H
#define PGSLUICE_LIBRARY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <string.h>

enum { LIBRARY_MOST = 16 };

/* Put the functions of these names into `to`, a struct of as many pointers; return True or, where
 * the library at `path` is not loaded or lacks one, False. It is never let go of. */
static PyObject *library_find(PyObject *path, const char *const *names, size_t count, void *to)
{
    void *found[LIBRARY_MOST];
    const char *text = PyUnicode_AsUTF8AndSize(path, NULL);
    void *library;

    if (text == NULL)
        return NULL;
    library = dlopen(text, RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL || count > LIBRARY_MOST)
        Py_RETURN_FALSE;
    for (size_t i = 0; i < count; i++)
        if ((found[i] = dlsym(library, names[i])) == NULL)
            Py_RETURN_FALSE;
    memcpy(to, found, count * sizeof *found);
    Py_RETURN_TRUE;
}

#endif
