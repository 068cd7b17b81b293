#include "candidates.h"

#include <string.h>

#include "table.h"

static int refuse(const char *why)
{
    PyErr_SetString(PyExc_ValueError, why);
    return FAILED;
}

/* FNV-1a: the texts are those of filters. */
static uint32_t hash_of(const uint8_t *text, size_t size)
{
    uint32_t hash = UINT32_C(2166136261);

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ text[i]) * UINT32_C(16777619);
    return hash;
}

/* The entry of a text, or the free place where it would stand. */
static Entry *entry_of(const Index *index, uint32_t hash, const uint8_t *text, size_t size)
{
    size_t mask = index->room - 1, at = hash & mask;

    while (index->entries[at].text != NULL) {
        const Entry *entry = &index->entries[at];

        if (entry->hash == hash && entry->size == size && memcmp(entry->text, text, size) == 0)
            break;
        at = (at + 1) & mask;
    }
    return &index->entries[at];
}

static int read_list(CandidateList *to, PyObject *from, const Numbered *of)
{
    if (!PyTuple_Check(from))
        return refuse("decisions are not a tuple");
    for (Py_ssize_t i = 0; i < PyTuple_Size(from); i++) {
        PyObject *item = PyTuple_GetItem(from, i);
        Py_ssize_t target, condition;

        if (!has_layout(item, DECISION_SIZE, "decision"))
            return FAILED;
        target = PyLong_AsSsize_t(PyTuple_GetItem(item, DECISION_TARGET));
        condition = PyLong_AsSsize_t(PyTuple_GetItem(item, DECISION_CONDITION));
        if (PyErr_Occurred())
            return FAILED;
        if (target < 0 || target >= of->target_count)
            return refuse("there is no such target");
        if (condition < -1 || condition >= of->condition_count)
            return refuse("there is no such condition");
        if (grow((void **)&to->items, &to->room, to->count, sizeof *to->items) != DONE)
            return FAILED;
        to->items[to->count++] = (Candidate){
            &of->targets[target], condition < 0 ? NULL : &of->conditions[condition],
            PyTuple_GetItem(item, DECISION_PASSES)};
    }
    return DONE;
}

static int read_index(Index *to, PyObject *from, const Numbered *of)
{
    PyObject *text, *decisions, *by_text, *lookup;
    Py_ssize_t at = 0;

    if (!has_layout(from, INDEX_SIZE, "index"))
        return FAILED;
    to->column = PyLong_AsSsize_t(PyTuple_GetItem(from, INDEX_COLUMN));
    by_text = PyTuple_GetItem(from, INDEX_BY_TEXT);
    lookup = PyTuple_GetItem(from, INDEX_LOOKUP);
    if (PyErr_Occurred())
        return FAILED;
    if (!PyDict_Check(by_text) || (lookup != Py_None && !PyDict_Check(lookup)))
        return refuse("an index is not by text");
    if (to->column < 0 || to->column >= of->columns)
        return refuse("there is no such column");
    if (lookup != Py_None) {
        to->lookup = lookup;
        return read_list(&to->looked_up, PyTuple_GetItem(from, INDEX_DECISIONS), of);
    }
    to->room = 4;
    while (to->room < 2 * (size_t)PyDict_Size(by_text))
        to->room *= 2;
    to->entries = PyMem_Calloc(to->room, sizeof *to->entries);
    if (to->entries == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    while (PyDict_Next(by_text, &at, &text, &decisions)) {
        CandidateList *list = &to->null;

        if (text != Py_None) {
            const uint8_t *data;
            Py_ssize_t size;
            uint32_t hash;
            Entry *entry;

            if (read_bytes(text, &data, &size) != DONE)
                return FAILED;
            hash = hash_of(data, (size_t)size);
            entry = entry_of(to, hash, data, (size_t)size);
            entry->text = data;
            entry->size = (size_t)size;
            entry->hash = hash;
            list = &entry->found;
        }
        if (read_list(list, decisions, of) != DONE)
            return FAILED;
    }
    return DONE;
}

int candidates_read(Candidates *to, PyObject *from, const Numbered *of)
{
    PyObject *indexes;

    if (!has_layout(from, CANDIDATES_SIZE, "set of candidates"))
        return FAILED;
    if (read_list(&to->everyone, PyTuple_GetItem(from, CANDIDATES_EVERYONE), of) != DONE ||
        read_list(&to->others, PyTuple_GetItem(from, CANDIDATES_OTHERS), of) != DONE)
        return FAILED;
    indexes = PyTuple_GetItem(from, CANDIDATES_INDEXES);
    if (!PyTuple_Check(indexes))
        return refuse("indexes are not a tuple");
    to->indexes = PyMem_Calloc((size_t)PyTuple_Size(indexes) + 1, sizeof *to->indexes);
    if (to->indexes == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    to->index_count = PyTuple_Size(indexes);
    for (Py_ssize_t i = 0; i < to->index_count; i++) {
        if (read_index(&to->indexes[i], PyTuple_GetItem(indexes, i), of) != DONE)
            return FAILED;
        to->has_lookup |= to->indexes[i].lookup != NULL;
    }
    return DONE;
}

void candidates_free(Candidates *candidates)
{
    for (Py_ssize_t i = 0; i < candidates->index_count; i++) {
        Index *index = &candidates->indexes[i];

        for (size_t at = 0; index->entries != NULL && at < index->room; at++)
            PyMem_Free(index->entries[at].found.items);
        PyMem_Free(index->entries);
        PyMem_Free(index->null.items);
        PyMem_Free(index->looked_up.items);
    }
    PyMem_Free(candidates->indexes);
    PyMem_Free(candidates->everyone.items);
    PyMem_Free(candidates->others.items);
}

static int append(CandidateList *list, const CandidateList *more)
{
    for (size_t i = 0; i < more->count; i++) {
        if (grow((void **)&list->items, &list->room, list->count, sizeof *list->items) != DONE)
            return FAILED;
        list->items[list->count++] = more->items[i];
    }
    return DONE;
}

static const CandidateList *under(const Index *index, const Value *value)
{
    uint32_t hash = hash_of(value->text, value->size);

    return &entry_of(index, hash, value->text, value->size)->found;
}

/* Ask the index that changes about a text. What it raises is left to the interpreted path. */
static int look_up(const Index *index, const Value *value, CandidateList *found)
{
    PyObject *text, *places;
    int got = DONE;

    if (value->kind == VALUE_UNCHANGED)
        return NOT_MINE;
    if (value->kind == VALUE_NULL) {
        places = PyObject_GetItem(index->lookup, Py_None);
    } else {
        text = PyBytes_FromStringAndSize((const char *)value->text, (Py_ssize_t)value->size);
        if (text == NULL)
            return FAILED;
        places = PyObject_GetItem(index->lookup, text);
        Py_DECREF(text);
    }
    if (places == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError))
            return FAILED;
        PyErr_Clear();
        return NOT_MINE;
    }
    if (!PyTuple_Check(places))
        got = NOT_MINE;
    for (Py_ssize_t i = 0; got == DONE && i < PyTuple_Size(places); i++) {
        size_t place = PyLong_AsSize_t(PyTuple_GetItem(places, i));

        if (PyErr_Occurred())
            got = FAILED;
        else if (place >= index->looked_up.count)
            got = refuse("there is no such decision");
        else
            got = append(found, &(CandidateList){&index->looked_up.items[place], 1, 1});
    }
    Py_DECREF(places);
    return got;
}

/* Whether a row is looked up by another text than its predecessor: who has which is Python's. */
static int is_looked_up_anew(const Candidates *among, const Value *before, const Value *after)
{
    for (Py_ssize_t i = 0; i < among->index_count; i++) {
        const Index *index = &among->indexes[i];
        const Value *old = &before[index->column], *new = &after[index->column];

        if (index->lookup != NULL &&
            (old->kind != new->kind || old->size != new->size ||
             (old->size > 0 && memcmp(old->text, new->text, old->size) != 0)))
            return 1;
    }
    return 0;
}

/* As gateway.routing.row.targets.Candidates.of. */
int candidates_find(const Candidates *among, const Value *values, CandidateList *found)
{
    int got;

    found->count = 0;
    got = append(found, &among->others);
    for (Py_ssize_t i = 0; got == DONE && i < among->index_count; i++) {
        const Index *index = &among->indexes[i];
        const Value *value = &values[index->column];

        if (index->lookup != NULL) {
            got = look_up(index, value, found);
            continue;
        }
        if (value->kind == VALUE_UNCHANGED) {
            if (among->has_lookup)
                return NOT_MINE;
            found->count = 0;
            return append(found, &among->everyone);
        }
        got = append(found, value->kind == VALUE_NULL ? &index->null : under(index, value));
    }
    return got;
}

/* As gateway.routing.row.targets.Candidates.of_both. */
int candidates_find_both(const Candidates *among, const Value *old_values, const Value *new_values,
                         CandidateList *before, CandidateList *found)
{
    int got = candidates_find(among, new_values, found);
    size_t count = found->count;

    if (got != DONE || old_values == NULL || among->index_count == 0)
        return got;
    if (among->has_lookup && is_looked_up_anew(among, old_values, new_values))
        return NOT_MINE;
    got = candidates_find(among, old_values, before);
    for (size_t i = 0; got == DONE && i < before->count; i++) {
        size_t k = 0;
        while (k < count && found->items[k].target != before->items[i].target)
            k++;
        if (k < count)
            continue;
        got = grow((void **)&found->items, &found->room, found->count, sizeof *found->items);
        if (got == DONE)
            found->items[found->count++] = before->items[i];
    }
    return got;
}
