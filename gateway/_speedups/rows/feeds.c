#include "series.h"

#include <stdlib.h>
#include <string.h>

int feeds_read(Feeds *feeds, PyObject *from)
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
        PyObject *item = PyTuple_GetItem(from, i);

        if (!has_layout(item, FEED_SIZE, "feed") ||
            read_bytes(PyTuple_GetItem(item, FEED_PREFIX), &feed->prefix, &feed->prefix_size) !=
                DONE)
            return FAILED;
        feed->subscription = PyTuple_GetItem(item, FEED_SUBSCRIPTION);
        feed->markers = PyTuple_GetItem(item, FEED_MARKERS);
        if (!PyUnicode_Check(feed->subscription) || !PyUnicode_Check(feed->markers)) {
            PyErr_SetString(PyExc_TypeError, "a feed has names that are no texts");
            return FAILED;
        }
        feed->end_lsn = -1;
    }
    return DONE;
}

void feeds_free(Feeds *feeds)
{
    PyMem_Free(feeds->items);
    PyMem_Free(feeds->shares);
    PyMem_Free(feeds->touched.items);
    PyMem_Free(feeds->ended.items);
    buffer_free(&feeds->common);
    buffer_free(&feeds->value);
}

/* Note what the transaction at hand has published to a topic, which may be noted several times. */
static int add_share(Feeds *feeds, Share share)
{
    if (share.feed < 0 || share.feed >= feeds->count) {
        PyErr_SetString(PyExc_ValueError, "there is no such feed");
        return FAILED;
    }
    if (grow((void **)&feeds->shares, &feeds->share_room, feeds->share_count,
             sizeof *feeds->shares) != DONE)
        return FAILED;
    feeds->shares[feeds->share_count++] = share;
    return DONE;
}

/* Note the targets that have records of the transaction at hand. */
int touch(Feeds *feeds, const TargetList *counted)
{
    TargetList *touched = &feeds->touched;

    for (size_t i = 0; i < counted->count; i++) {
        Target *target = counted->items[i];

        if (grow((void **)&touched->items, &touched->room, touched->count,
                 sizeof *touched->items) != DONE ||
            add_share(feeds, (Share){target->number, target->feed, target->counts[RECORDS],
                                     target->topic, 0}) != DONE)
            return FAILED;
        touched->items[touched->count++] = target;
    }
    return DONE;
}

/* As gateway.envelope.markers.encode_end_of. */
static int put_common(Buffer *out, const Ending *ending)
{
    out->size = 0;
    if (put_long(out, KIND_END) != DONE || put_long(out, ending->end_lsn) != DONE ||
        put_bytes(out, "\x02", 1) != DONE || put_long(out, ending->commit_lsn) != DONE ||
        put_bytes(out, "\x02", 1) != DONE || put_long(out, ending->xid) != DONE ||
        put_bytes(out, "\x02", 1) != DONE || put_long(out, ending->commit_us) != DONE)
        return FAILED;
    return put_bytes(out, "\x00\x00", 2); /* no origin, no gid */
}

static int by_number(const void *one, const void *other)
{
    const Share *first = one, *second = other;

    return (first->number > second->number) - (first->number < second->number);
}

/* Sort the shares by topic, one for each, and chain those of each subscription, which knows its
 * first. As gateway.routing.row.counters.pop_counts. */
static void arrange(Feeds *feeds)
{
    Share *shares = feeds->shares;
    size_t count = 0;

    if (feeds->share_count > 1)
        qsort(shares, feeds->share_count, sizeof *shares, by_number);
    for (size_t i = 0; i < feeds->share_count; i++) {
        if (count > 0 && shares[count - 1].number == shares[i].number)
            shares[count - 1].records += shares[i].records;
        else
            shares[count++] = shares[i];
    }
    feeds->share_count = count;
    for (size_t i = 0; i < count; i++)
        feeds->items[shares[i].feed].topics = 0;
    for (size_t i = 0; i < count; i++) {
        Feed *feed = &feeds->items[shares[i].feed];

        if (feed->topics++ == 0)
            feed->first = i;
        else
            shares[feed->last].next = i;
        feed->last = i;
    }
}

/* The topics of one subscription: as gateway.envelope.markers.encode_end. */
static int put_topics(Buffer *out, const Feeds *feeds, const Feed *feed)
{
    size_t place = feed->first;

    if (put_long(out, feed->topics) != DONE)
        return FAILED;
    for (Py_ssize_t i = 0; i < feed->topics; i++) {
        const Share *share = &feeds->shares[place];
        Py_ssize_t size;
        const char *topic = PyUnicode_AsUTF8AndSize(share->topic, &size);

        if (topic == NULL || put_long(out, size) != DONE ||
            put_bytes(out, topic, (size_t)size) != DONE ||
            put_long(out, share->records) != DONE)
            return FAILED;
        place = share->next;
    }
    return put_bytes(out, "\x00\x00\x00\x00\x00\x00", 6); /* the end of topics; no offsets, ... */
}

static int put_end(Feeds *feeds, Feed *feed, PyObject *headers, PyObject *out)
{
    Buffer *value = &feeds->value;
    PyObject *bytes, *record;
    int got;

    value->size = 0;
    if (put_bytes(value, feed->prefix, (size_t)feed->prefix_size) != DONE ||
        put_bytes(value, feeds->common.data, feeds->common.size) != DONE ||
        put_topics(value, feeds, feed) != DONE)
        return FAILED;
    bytes = PyBytes_FromStringAndSize((const char *)value->data, (Py_ssize_t)value->size);
    record = record_of(feed->markers, 0, shared_item(Py_None), bytes, headers);
    if (record == NULL)
        return FAILED;
    got = PyList_Append(out, record) < 0 ? FAILED : DONE;
    Py_DECREF(record);
    return got;
}

/* Append a marker for each subscription that has a share, in the order of the topics. */
static int put_markers(Feeds *feeds, int64_t end_lsn, PyObject *headers, PyObject *out)
{
    int got = DONE;

    arrange(feeds);
    for (size_t i = 0; got == DONE && i < feeds->share_count; i++) {
        Feed *feed = &feeds->items[feeds->shares[i].feed];

        if (feed->first != i)
            continue;
        got = put_end(feeds, feed, headers, out);
        if (got == DONE)
            feed->end_lsn = end_lsn;
    }
    feeds->share_count = 0;
    return got;
}

/* END markers of the transaction at hand, as gateway.routing.router makes them; it has ended then. */
int put_ends(Feeds *feeds, const Ending *ending, const Shared *shared, PyObject *out)
{
    TargetList *touched = &feeds->touched;
    PyObject *headers;
    int got;

    if (touched->count == 0)
        return DONE;
    headers = end_headers(shared, ending->commit_lsn, ending->seq);
    if (headers == NULL || put_common(&feeds->common, ending) != DONE) {
        Py_XDECREF(headers);
        return FAILED;
    }
    got = put_markers(feeds, ending->end_lsn, headers, out);
    Py_DECREF(headers);
    for (size_t i = 0; got == DONE && i < touched->count; i++)
        got = end_counts(&feeds->ended, touched->items[i]);
    if (got == DONE)
        touched->count = 0;
    return got;
}

/* The same for a transaction that the topics' counters have already. */
int put_counted_ends(Feeds *feeds, PyObject *counters, PyObject *common, int64_t end_lsn,
                     PyObject *headers, PyObject *out)
{
    const uint8_t *data;
    Py_ssize_t size;

    feeds->common.size = 0;
    if (read_bytes(common, &data, &size) != DONE ||
        put_bytes(&feeds->common, data, (size_t)size) != DONE)
        return FAILED;
    for (Py_ssize_t i = 0; i < PyList_Size(counters); i++) {
        PyObject *counter = PyList_GetItem(counters, i), *topic;
        Share share = {0};
        int got;

        if (end_counter(counter, &share.records, &share.number, &share.feed, &topic) != DONE)
            return FAILED;
        share.topic = topic; /* the counter keeps it */
        got = share.records > 0 ? add_share(feeds, share) : DONE;
        Py_DECREF(topic);
        if (got != DONE)
            return FAILED;
    }
    return put_markers(feeds, end_lsn, headers, out);
}

/* Note where the subscriptions stand that got a marker. */
int report_feeds(Feeds *feeds, PyObject *ended)
{
    int got = DONE;

    for (Py_ssize_t i = 0; i < feeds->count; i++) {
        Feed *feed = &feeds->items[i];
        PyObject *lsn;

        if (feed->end_lsn < 0)
            continue;
        lsn = got == DONE ? PyLong_FromLongLong(feed->end_lsn) : NULL;
        if (lsn == NULL || PyDict_SetItem(ended, feed->subscription, lsn) < 0)
            got = FAILED;
        Py_XDECREF(lsn);
        feed->end_lsn = -1;
    }
    return got;
}
