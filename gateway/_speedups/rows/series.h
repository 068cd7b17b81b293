/* Short transactions as a whole: Begin, changes and Commit in, records and END markers out. And the
 * END markers of all others. */
#ifndef PGSLUICE_SERIES_H
#define PGSLUICE_SERIES_H

#include "counts.h"

/* A relation as Python holds it. */
typedef struct {
    PyObject ob_base;
    Work work;
    Shared shared;
    int is_busy;
} Rows;

/* The topics of one subscription: gateway.core.records.Feed. */
typedef struct {
    PyObject *subscription, *markers;
    const uint8_t *prefix;
    Py_ssize_t prefix_size;
    int64_t end_lsn; /* of the last transaction that got an END marker in this call; -1: none did */
    Py_ssize_t topics; /* that the transaction at hand has written to: a chain of shares */
    size_t first, last;
} Feed;

/* Records of the transaction at hand in one topic. */
typedef struct {
    Py_ssize_t number, feed; /* the topic's place, and its subscription's, among all */
    Py_ssize_t records;
    PyObject *topic; /* borrowed */
    size_t next; /* of the same subscription */
} Share;

typedef struct {
    Feed *items;
    Py_ssize_t count;
    Share *shares;
    size_t share_count, share_room;
    TargetList touched; /* of the transaction at hand */
    TargetList ended;
    Buffer common, value;
} Feeds;

int64_t int64_at(const uint8_t *data);
PyObject *series_type(PyObject *rows_type);

/* Fields of an END marker that describe the transaction. */
typedef struct {
    int64_t commit_lsn, end_lsn, xid, commit_us;
    int64_t seq, total_order;
} Ending;

int feeds_read(Feeds *feeds, PyObject *from);
void feeds_free(Feeds *feeds);
int touch(Feeds *feeds, const TargetList *counted);
int put_ends(Feeds *feeds, const Ending *ending, const Shared *shared, PyObject *out);
int put_counted_ends(Feeds *feeds, PyObject *counters, PyObject *common, int64_t end_lsn,
                     PyObject *headers, PyObject *out);
int report_feeds(Feeds *feeds, PyObject *ended);

#endif
