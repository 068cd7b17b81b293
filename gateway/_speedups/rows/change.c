#include "change.h"

#include <string.h>

/* Drop what a change has made that is not in the output. */
void work_forget(Work *work)
{
    for (size_t i = 0; i < work->made.count; i++)
        Py_CLEAR(work->made.items[i].record);
    work->made.count = 0;
    work->scratch.size = 0;
    Py_CLEAR(work->old_row);
    Py_CLEAR(work->new_row);
}

/* The row as an argument of compiled conditions: a list of the values that one of them reads. */
static PyObject *row_of(const Table *table, const Value *values)
{
    PyObject *row = PyList_New(table->columns);

    for (Py_ssize_t i = 0; row != NULL && i < table->columns; i++) {
        const Value *value = &values[i];
        PyObject *item = value->kind == VALUE_UNCHANGED ? table->unchanged : Py_None;

        if (value->kind == VALUE_TEXT && table->is_read[i]) {
            item = PyBytes_FromStringAndSize((const char *)value->text, (Py_ssize_t)value->size);
            if (item == NULL) {
                Py_CLEAR(row);
                break;
            }
        } else {
            Py_INCREF(item);
        }
        PyList_SetItem(row, i, item);
    }
    return row;
}

/* Ask a function about the old or the new row; what it raises is left to the interpreted path. */
static int ask(Work *work, PyObject *passes, int is_old, int *verdict)
{
    PyObject **row = is_old ? &work->old_row : &work->new_row;
    PyObject *answer;

    if (*row == NULL)
        *row = row_of(&work->table, is_old ? work->old_values : work->new_values);
    if (*row == NULL)
        return FAILED;
    answer = PyObject_CallFunctionObjArgs(passes, *row, NULL);
    *verdict = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (*verdict >= 0)
        return DONE;
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError))
        return FAILED;
    PyErr_Clear();
    return NOT_MINE;
}

/* Whether the old or the new row passes. */
int decide(Work *work, const Candidate *candidate, int is_old, int *verdict)
{
    if (candidate->condition != NULL)
        return condition_holds(candidate->condition, is_old ? work->old_values : work->new_values,
                               verdict);
    if (candidate->passes != Py_None)
        return ask(work, candidate->passes, is_old, verdict);
    *verdict = 1;
    return DONE;
}

/* Decide as what an UPDATE is published to one target, -1 for nothing: the table of
 * gateway.rowfilter.transform. */
static int decide_update(Work *work, const Candidate *candidate, int has_old, int *action)
{
    int old_passes = 1, new_passes = 1, got = DONE;

    if (has_old)
        got = decide(work, candidate, 1, &old_passes);
    if (got == DONE)
        got = decide(work, candidate, 0, &new_passes);
    if (!has_old)
        old_passes = new_passes;
    if (old_passes && new_passes)
        *action = UPDATE;
    else if (new_passes)
        *action = INSERT;
    else
        *action = old_passes ? DELETE : -1;
    return got;
}

/* Bytes after a prefix. */
static PyObject *prefixed(const uint8_t *prefix, Py_ssize_t size, const uint8_t *data, size_t more)
{
    PyObject *whole = PyBytes_FromStringAndSize(NULL, size + (Py_ssize_t)more);
    char *to;

    if (whole == NULL)
        return NULL;
    to = PyBytes_AsString(whole);
    memcpy(to, prefix, (size_t)size);
    memcpy(to + size, data, more);
    return whole;
}

static int emit_one(Work *work, Group *group, Target *target, const Draft *from, int is_tombstone)
{
    const uint8_t *data = work->scratch.data;
    MadeList *made = &work->made;
    PyObject *record, *key, *value;
    long partition = group->is_spread ? (long)(from->hash % (unsigned long)target->partitions) : 0;

    if (grow((void **)&made->items, &made->room, made->count, sizeof *made->items) != DONE)
        return FAILED;
    key = !from->has_key ? shared_item(Py_None)
                         : prefixed(target->key_prefix, target->key_prefix_size,
                                    data + from->key_at, from->key_size);
    value = is_tombstone ? shared_item(Py_None)
                         : prefixed(target->value_prefix, target->value_prefix_size,
                                    data + from->body_at, from->body_size);
    if ((record = record_of(target->topic, partition, key, value, from->headers)) == NULL)
        return FAILED;
    made->items[made->count] =
        (Made){record, target, is_tombstone, -1, 0, is_tombstone ? 0 : from->body_size};
    made->count++;
    return DONE;
}

/* As gateway.routing.row.projection_route.ProjectionRoute.emit; a plain INSERT is counted as a
 * record and nothing else. */
int emit(Work *work, Group *group, Target *target, const Drafts *drafts, int action, int is_plain)
{
    size_t first = work->made.count;

    for (int i = 0; i < drafts->count; i++) {
        const Draft *from = &drafts->items[i];

        if (emit_one(work, group, target, from, 0) != DONE)
            return FAILED;
        if (from->has_tombstone && emit_one(work, group, target, from, 1) != DONE)
            return FAILED;
    }
    if (!is_plain && work->made.count > first) {
        work->made.items[first].counted_as = action;
        for (size_t i = first; i < work->made.count; i++)
            work->made.items[i].is_other = 1;
    }
    return DONE;
}

void drop(Drafts *drafts)
{
    for (int i = 0; i < drafts->count; i++)
        Py_CLEAR(drafts->items[i].headers);
}

static int make(Work *work, Group *group, int operation, int action, int has_old, int full,
                Drafts *to)
{
    if (to->count >= 0)
        return DONE;
    if (operation == UPDATE)
        return draft_update(work, group, action, has_old, full, to);
    to->count = 0;
    if (operation == INSERT)
        return draft(work, group, OP_INSERTED, work->new_values, NULL, 0, work->new_values, work->seq,
                     0, to);
    return draft(work, group, OP_DELETED, work->old_values, work->old_values, full, NULL, work->seq,
                 0, to);
}

static int route_group(Work *work, Group *group, int operation, int has_old, int full)
{
    Drafts drafts[OPERATIONS] = {{.count = -1}, {.count = -1}, {.count = -1}};
    CandidateList *found = &work->found;
    const Candidates *among = &group->candidates[operation];
    int got = operation == UPDATE
                  ? candidates_find_both(among, has_old ? work->old_values : NULL,
                                         work->new_values, &work->before, found)
                  : candidates_find(among, has_old ? work->old_values : work->new_values, found);

    for (size_t i = 0; got == DONE && i < found->count; i++) {
        const Candidate *candidate = &found->items[i];
        Target *target = candidate->target;
        int action = operation, verdict = 1;

        if (work->shared->has_origin && target->skips_origins)
            continue; /* what its filter would raise does not count either */
        if (operation == UPDATE)
            got = decide_update(work, candidate, has_old, &action);
        else
            got = decide(work, candidate, has_old, &verdict);
        if (got != DONE || action < 0 || !verdict)
            continue;
        got = make(work, group, operation, action, has_old, full, &drafts[action]);
        if (got == DONE)
            got = emit(work, group, target, &drafts[action], action, operation == INSERT);
    }
    for (int i = 0; i < OPERATIONS; i++)
        drop(&drafts[i]);
    return got;
}

/* Route the Insert, Update or Delete in `frame` whose relation's OID stands at `at`. */
int route_change(Work *work, const uint8_t *frame, size_t size, size_t at)
{
    Table *table = &work->table;
    int operation, has_old, full, got;
    uint8_t tag = frame[TAG_AT];
    size_t position = at + 4;

    work->frame_size = size;
    if (size - position < 1)
        return NOT_MINE;
    operation = tag == TAG_INSERT ? INSERT : tag == TAG_UPDATE ? UPDATE : DELETE;
    full = frame[position] == TUPLE_OLD;
    has_old = full || frame[position] == TUPLE_KEY;
    if (has_old ? operation == INSERT : operation == DELETE)
        return NOT_MINE;
    if (has_old) {
        position++;
        got = split(table, frame, size, &position, work->old_values);
        if (got != DONE)
            return got;
    }
    if (operation != DELETE) {
        if (position >= size || frame[position++] != TUPLE_NEW)
            return NOT_MINE;
        got = split(table, frame, size, &position, work->new_values);
        if (got != DONE)
            return got;
    }
    if (position != size)
        return NOT_MINE;
    if (operation == INSERT && has_unchanged(table, work->new_values))
        return NOT_MINE;
    for (Py_ssize_t i = 0; operation == UPDATE && has_old && i < table->columns; i++)
        if (work->new_values[i].kind == VALUE_UNCHANGED && work->old_values[i].kind != VALUE_NULL)
            work->new_values[i] = work->old_values[i];
    work->seq += operation == UPDATE ? 2 : 1;
    work->total_order++;
    for (Py_ssize_t i = 0; i < table->group_count; i++) {
        got = route_group(work, &table->groups[i], operation, has_old, full);
        if (got != DONE)
            return got;
    }
    return DONE;
}
