/* Short transactions as a whole: Begin, changes and Commit in, records and END markers out. */
#ifndef PGSLUICE_SERIES_H
#define PGSLUICE_SERIES_H

#include "counts.h"

enum { TAG_AT = 25 };

/* What Python holds of a relation. */
typedef struct {
    PyObject ob_base;
    Work work;
    Shared shared;
    int is_busy;
} Rows;

/* The topics of one subscription: gateway.records.Feed. */
typedef struct {
    PyObject *subscription, *markers;
    const uint8_t *prefix;
    Py_ssize_t prefix_size;
    int64_t end_lsn; /* of the last transaction that got an END marker in this call; -1: none did */
    int is_ended;    /* of the transaction at hand, the marker is made */
} Feed;

typedef struct {
    Feed *items;
    Py_ssize_t count;
    TakerList touched; /* of the transaction at hand */
    TakerList ended;
    Buffer common, value;
} Feeds;

int64_t int64_at(const uint8_t *data);
PyObject *series_type(PyObject *rows_type);

/* What an END marker says of the transaction. */
typedef struct {
    int64_t commit_lsn, end_lsn, xid, commit_us;
    int64_t seq, total_order;
} Ending;

int feeds_take(Feeds *feeds, PyObject *from);
void feeds_free(Feeds *feeds);
int touch(Feeds *feeds, const TakerList *counted);
int put_ends(Feeds *feeds, const Ending *ending, const Shared *shared, PyObject *out);

#endif
