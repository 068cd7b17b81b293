/* One row of a copy: a line of COPY in text format in, records out; or NOT_MINE, and nothing has
 * happened. */
#ifndef PGSLUICE_COPY_H
#define PGSLUICE_COPY_H

#include "change.h"

int copy_row(Work *work, const uint8_t *line, size_t size, PyObject *tails, PyObject *headers);

#endif
