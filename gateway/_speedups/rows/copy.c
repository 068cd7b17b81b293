#include "copy.h"

#include <string.h>

/* Return the character that a backslash and a letter stand for; 0: COPY does not write that. */
static uint8_t unescaped(uint8_t letter)
{
    switch (letter) {
    case '\\':
        return '\\';
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'v':
        return '\v';
    default:
        return 0;
    }
}

/* Copy a column's text to `to` without its escapes. Source: CopyAttributeOutText in copyto.c. */
static int unescape(uint8_t *to, Value *value)
{
    const uint8_t *from = value->text, *end = from + value->size;

    value->text = to;
    while (from < end) {
        uint8_t c = *from++;

        if (c == '\\') {
            c = from < end ? unescaped(*from++) : 0;
            if (c == 0)
                return NOT_MINE;
        }
        *to++ = c;
    }
    value->size = (size_t)(to - value->text);
    return DONE;
}

/* Split a line without its newline; texts with escapes are written to the work's buffer. */
static int split_line(Work *work, const uint8_t *line, size_t size)
{
    const uint8_t *from = line, *end = line + size;
    Buffer *plain = &work->unescaped;
    int escaped = memchr(line, '\\', size) != NULL;

    plain->size = 0;
    if (escaped && buffer_reserve(plain, size) != DONE)
        return FAILED;
    for (Py_ssize_t i = 0; i < work->table.columns; i++) {
        Value *value = &work->new_values[i];
        const uint8_t *tab = memchr(from, '\t', (size_t)(end - from));
        int is_last = i == work->table.columns - 1;

        if ((tab == NULL) != is_last)
            return NOT_MINE;
        value->kind = VALUE_TEXT;
        value->text = from;
        value->size = (size_t)((is_last ? end : tab) - from);
        from = is_last ? end : tab + 1;
        if (!escaped || memchr(value->text, '\\', value->size) == NULL)
            continue;
        if (value->size == 2 && value->text[1] == 'N') {
            value->kind = VALUE_NULL;
            value->text = NULL;
            value->size = 0;
            continue;
        }
        if (unescape(plain->data + plain->size, value) != DONE)
            return NOT_MINE;
        plain->size += value->size;
    }
    return DONE;
}

/* Encode the record; whatever follows the row in the value is the same for all records. */
static int draft_row(Work *work, const Group *group, PyObject *tail, PyObject *headers, Drafts *to)
{
    const Value *row = work->new_values;
    Draft *made = &to->items[0];
    Buffer *out = &work->scratch;
    char *data;
    Py_ssize_t size;
    int got;

    to->count = 0;
    memset(made, 0, sizeof *made);
    made->has_key = group->has_key;
    made->key_at = out->size;
    if (group->has_key && (got = put_key(out, group, row)) != DONE)
        return got;
    made->key_size = out->size - made->key_at;
    if (group->is_spread && (got = hash_key(out, group, row, &made->hash)) != DONE)
        return got;
    made->body_at = out->size;
    if (put_bytes(out, "\x00\x02", 2) != DONE)
        return FAILED;
    if ((got = put_row(out, &group->row, row, NEW_ROW)) != DONE)
        return got;
    if (PyBytes_AsStringAndSize(tail, &data, &size) < 0 ||
        put_bytes(out, data, (size_t)size) != DONE)
        return FAILED;
    made->body_size = out->size - made->body_at;
    if (group->surely_fits < 0 || made->body_size > (size_t)group->surely_fits ||
        made->key_size > (size_t)group->surely_fits)
        return NOT_MINE;
    Py_INCREF(headers);
    made->headers = headers;
    to->count = 1;
    return DONE;
}

static int copy_to_group(Work *work, Group *group, PyObject *tail, PyObject *headers)
{
    Drafts drafts = {.count = -1};
    CandidateList *found = &work->found;
    int got = candidates_find(&group->candidates[INSERT], work->new_values, found);

    for (size_t i = 0; got == DONE && i < found->count; i++) {
        int verdict = 1;

        got = decide(work, &found->items[i], 0, &verdict);
        if (got != DONE || !verdict)
            continue;
        if (drafts.count < 0)
            got = draft_row(work, group, tail, headers, &drafts);
        if (got == DONE)
            got = emit(work, group, found->items[i].target, &drafts, INSERT, 1);
    }
    drop(&drafts);
    return got;
}

/* Make the records of one line with its newline; `tails` has bytes for each group. */
int copy_row(Work *work, const uint8_t *line, size_t size, PyObject *tails, PyObject *headers)
{
    int got;

    if (size == 0 || line[size - 1] != '\n' || work->table.columns == 0)
        return NOT_MINE;
    got = split_line(work, line, size - 1);
    for (Py_ssize_t i = 0; got == DONE && i < work->table.group_count; i++)
        got = copy_to_group(work, &work->table.groups[i], PyTuple_GetItem(tails, i), headers);
    return got;
}
