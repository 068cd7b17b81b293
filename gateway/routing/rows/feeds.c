#include "series.h"

#include <stdlib.h>
#include <string.h>

/* A tuple of (subscription, topic of its markers, their prefix). */
int feeds_take(Feeds *feeds, PyObject *from)
{
    Py_ssize_t count = PyTuple_Size(from);

    feeds->items = PyMem_Calloc(count > 0 ? (size_t)count : 1, sizeof *feeds->items);
    if (feeds->items == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    feeds->count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        Feed *feed = &feeds->items[i];
        PyObject *prefix, *item = PyTuple_GetItem(from, i);

        if (!PyTuple_Check(item)) {
            PyErr_SetString(PyExc_ValueError, "a feed is not a tuple");
            return FAILED;
        }
        if (!PyArg_ParseTuple(item, "UUS", &feed->subscription, &feed->markers, &prefix) ||
            take_bytes(prefix, &feed->prefix, &feed->prefix_size) != DONE)
            return FAILED;
        feed->end_lsn = -1;
    }
    return DONE;
}

void feeds_free(Feeds *feeds)
{
    PyMem_Free(feeds->items);
    PyMem_Free(feeds->touched.items);
    PyMem_Free(feeds->ended.items);
    buffer_free(&feeds->common);
    buffer_free(&feeds->value);
}

/* Note those that have records of the transaction at hand. */
int touch(Feeds *feeds, const TakerList *counted)
{
    TakerList *touched = &feeds->touched;

    for (size_t i = 0; i < counted->count; i++) {
        Taker *taker = counted->items[i];

        if (taker->feed < 0 || taker->feed >= feeds->count) {
            PyErr_SetString(PyExc_ValueError, "there is no such feed");
            return FAILED;
        }
        if (grow((void **)&touched->items, &touched->room, touched->count,
                 sizeof *touched->items) != DONE)
            return FAILED;
        touched->items[touched->count++] = taker;
        feeds->items[taker->feed].is_ended = 0;
    }
    return DONE;
}

/* As gateway.envelope.markers.encode_end_of. */
static int put_common(Buffer *out, const Ending *ending)
{
    out->size = 0;
    if (put_bytes(out, "\x00", 1) != DONE || put_long(out, ending->end_lsn) != DONE ||
        put_bytes(out, "\x02", 1) != DONE || put_long(out, ending->commit_lsn) != DONE ||
        put_bytes(out, "\x02", 1) != DONE || put_long(out, ending->xid) != DONE ||
        put_bytes(out, "\x02", 1) != DONE || put_long(out, ending->commit_us) != DONE)
        return FAILED;
    return put_bytes(out, "\x00\x00", 2); /* no origin, no gid */
}

static int by_number(const void *one, const void *other)
{
    const Taker *first = *(Taker *const *)one, *second = *(Taker *const *)other;

    return (first->number > second->number) - (first->number < second->number);
}

/* The topics of one subscription, of which the first stands at `first`: as encode_end. A topic may
 * be there several times, once for each relation that is published there. */
static int put_topics(Buffer *out, const TakerList *touched, size_t first)
{
    Py_ssize_t feed = touched->items[first]->feed;
    int64_t topics = 0, last = -1;

    for (size_t i = first; i < touched->count; i++) {
        const Taker *taker = touched->items[i];

        topics += taker->feed == feed && taker->number != last;
        if (taker->feed == feed)
            last = taker->number;
    }
    if (put_long(out, topics) != DONE)
        return FAILED;
    for (size_t i = first; i < touched->count; i++) {
        const Taker *taker = touched->items[i];
        int64_t records = taker->counts[RECORDS];

        if (taker->feed != feed)
            continue;
        for (; i + 1 < touched->count && touched->items[i + 1]->number == taker->number; i++)
            records += touched->items[i + 1]->counts[RECORDS];
        if (put_bytes(out, taker->avro_topic, (size_t)taker->avro_topic_size) != DONE ||
            put_long(out, records) != DONE)
            return FAILED;
    }
    return put_bytes(out, "\x00\x00\x00\x00", 4); /* the end of topics; no offsets, copy, ... */
}

static int put_end(Feeds *feeds, Feed *feed, size_t first, PyObject *headers, PyObject *out)
{
    Buffer *value = &feeds->value;
    PyObject *bytes, *record;
    int got;

    value->size = 0;
    if (put_bytes(value, feed->prefix, (size_t)feed->prefix_size) != DONE ||
        put_bytes(value, feeds->common.data, feeds->common.size) != DONE ||
        put_topics(value, &feeds->touched, first) != DONE)
        return FAILED;
    bytes = PyBytes_FromStringAndSize((const char *)value->data, (Py_ssize_t)value->size);
    record = bytes == NULL ? NULL : Py_BuildValue("(OiOOO)", feed->markers, 0, Py_None, bytes, headers);
    Py_XDECREF(bytes);
    if (record == NULL)
        return FAILED;
    got = PyList_Append(out, record) < 0 ? FAILED : DONE;
    Py_DECREF(record);
    return got;
}

/* END markers of the transaction at hand, as gateway.routing.router makes them; it has ended then. */
int put_ends(Feeds *feeds, const Ending *ending, const Shared *shared, PyObject *out)
{
    TakerList *touched = &feeds->touched;
    PyObject *headers;
    int got = DONE;

    if (touched->count == 0)
        return DONE;
    headers = end_headers(shared, ending->commit_lsn, ending->seq);
    if (headers == NULL || put_common(&feeds->common, ending) != DONE) {
        Py_XDECREF(headers);
        return FAILED;
    }
    if (touched->count > 1)
        qsort(touched->items, touched->count, sizeof *touched->items, by_number);
    for (size_t i = 0; got == DONE && i < touched->count; i++) {
        Feed *feed = &feeds->items[touched->items[i]->feed];

        if (!feed->is_ended) {
            got = put_end(feeds, feed, i, headers, out);
            feed->is_ended = 1;
            feed->end_lsn = ending->end_lsn;
        }
    }
    Py_DECREF(headers);
    for (size_t i = 0; got == DONE && i < touched->count; i++)
        got = end_counts(&feeds->ended, touched->items[i]);
    if (got == DONE)
        touched->count = 0;
    return got;
}
