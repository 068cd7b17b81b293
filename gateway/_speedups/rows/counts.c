#include "counts.h"

#include <string.h>

enum { NUMBER = COUNTS, FEED, TOPIC, NAMES };

static PyObject *count_names[NAMES];

int count_names_make(void)
{
    static const char *const names[] = {"inserts", "updates", "deletes", "records",
                                        "others",  "number",  "feed",    "topic"};

    for (int i = 0; i < NAMES; i++)
        if ((count_names[i] = PyUnicode_InternFromString(names[i])) == NULL)
            return FAILED;
    return DONE;
}

static int count(Work *work, const Made *made)
{
    Py_ssize_t *counts = made->target->counts;
    TargetList *counted = &work->counted;

    if (made->is_tombstone)
        return DONE;
    if (counts[RECORDS] == 0) {
        if (grow((void **)&counted->items, &counted->room, counted->count,
                 sizeof *counted->items) != DONE)
            return FAILED;
        counted->items[counted->count++] = made->target;
    }
    counts[RECORDS]++;
    counts[OTHERS] += made->is_other;
    if (made->counted_as >= 0)
        counts[made->counted_as]++;
    return DONE;
}

/* Move the records of a change into `out`, and count them, and the bytes of their values. */
int hand_over(Work *work, PyObject *out, size_t *bytes)
{
    MadeList *made = &work->made;

    for (size_t i = 0; i < made->count; i++) {
        if (PyList_Append(out, made->items[i].record) < 0)
            return FAILED;
        if (count(work, &made->items[i]) != DONE)
            return FAILED;
        if (bytes != NULL)
            *bytes += made->items[i].size;
    }
    work_forget(work);
    return DONE;
}

/* One of a counter's attributes; -1 for a failure. */
static Py_ssize_t look_at(PyObject *counter, PyObject *name)
{
    PyObject *found = PyObject_GetAttr(counter, name);
    Py_ssize_t value = found == NULL ? -1 : PyLong_AsSsize_t(found);

    Py_XDECREF(found);
    if (value < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a counter is negative");
    return value < 0 ? -1 : value;
}

static int set(PyObject *counter, PyObject *name, Py_ssize_t value)
{
    PyObject *number = PyLong_FromSsize_t(value);
    int got = number == NULL || PyObject_SetAttr(counter, name, number) < 0 ? FAILED : DONE;

    Py_XDECREF(number);
    return got;
}

/* Add to one of a counter's attributes; return what it was, -1 for a failure. */
static Py_ssize_t add_to(PyObject *counter, PyObject *name, Py_ssize_t more)
{
    Py_ssize_t value = look_at(counter, name);

    return value >= 0 && set(counter, name, value + more) != DONE ? -1 : value;
}

/* Add the counts to the topics' counters; those without a record before are in `touched`. */
int report_counters(TargetList *counted, PyObject *touched)
{
    for (; counted->count > 0; counted->count--) {
        Target *target = counted->items[counted->count - 1];

        for (int k = 0; k < COUNTS; k++) {
            Py_ssize_t before = 1;

            if (target->counts[k] != 0)
                before = add_to(target->counter, count_names[k], target->counts[k]);
            if (before < 0)
                return FAILED;
            if (k == RECORDS && before == 0 && PyList_Append(touched, target->counter) < 0)
                return FAILED;
            target->counts[k] = 0;
        }
    }
    return DONE;
}

/* Return one of a counter's attributes and set it to zero; -1 for a failure. */
static Py_ssize_t pop_attribute(PyObject *counter, PyObject *name)
{
    Py_ssize_t before = look_at(counter, name);

    return before > 0 && set(counter, name, 0) != DONE ? -1 : before;
}

/* End a transaction for a counter that has its counts: as gateway.routing.row.counters.pop_counts.
 * Without records there is nothing to end. `*topic` is the caller's. */
int end_counter(PyObject *counter, Py_ssize_t *records, Py_ssize_t *number, Py_ssize_t *feed,
                PyObject **topic)
{
    Py_ssize_t others;

    *topic = NULL;
    if ((*records = pop_attribute(counter, count_names[RECORDS])) < 0 ||
        (others = pop_attribute(counter, count_names[OTHERS])) < 0 ||
        (*number = look_at(counter, count_names[NUMBER])) < 0 ||
        (*feed = look_at(counter, count_names[FEED])) < 0)
        return FAILED;
    if (*records > others && add_to(counter, count_names[INSERT], *records - others) < 0)
        return FAILED;
    *topic = PyObject_GetAttr(counter, count_names[TOPIC]);
    return *topic == NULL ? FAILED : DONE;
}

/* End a transaction for a topic: as gateway.routing.row.counters.pop_counts, but the counter gets
 * the counts later. */
int end_counts(TargetList *ended, Target *target)
{
    if (!target->has_ended) {
        if (grow((void **)&ended->items, &ended->room, ended->count, sizeof *ended->items) != DONE)
            return FAILED;
        ended->items[ended->count++] = target;
        target->has_ended = 1;
    }
    for (int k = 0; k < OPERATIONS; k++)
        target->ended[k] += target->counts[k];
    target->ended[INSERT] += target->counts[RECORDS] - target->counts[OTHERS];
    memset(target->counts, 0, sizeof target->counts);
    return DONE;
}

/* Add the counts of ended transactions to the topics' counters. */
int report_ended(TargetList *ended)
{
    int got = DONE;

    for (; ended->count > 0; ended->count--) {
        Target *target = ended->items[ended->count - 1];

        for (int k = 0; got == DONE && k < OPERATIONS; k++)
            if (target->ended[k] != 0 &&
                add_to(target->counter, count_names[k], target->ended[k]) < 0)
                got = FAILED;
        memset(target->ended, 0, sizeof target->ended);
        target->has_ended = 0;
    }
    return got;
}
