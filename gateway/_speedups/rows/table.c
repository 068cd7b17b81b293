#include "table.h"

#include <stdarg.h>
#include <string.h>

static int refuse(const char *why)
{
    PyErr_SetString(PyExc_ValueError, why);
    return FAILED;
}

static void *allocate(Py_ssize_t count, size_t size)
{
    void *memory = PyMem_Calloc(count > 0 ? (size_t)count : 1, size);

    if (memory == NULL)
        PyErr_NoMemory();
    return memory;
}

static int read_fields(Fields *to, PyObject *from, Py_ssize_t columns, int (*is_code)(int))
{
    if (!PyTuple_Check(from))
        return refuse("fields are not a tuple");
    to->count = PyTuple_Size(from);
    to->fields = allocate(to->count, sizeof *to->fields);
    if (to->fields == NULL)
        return FAILED;
    for (Py_ssize_t i = 0; i < to->count; i++) {
        Field *field = &to->fields[i];
        PyObject *item = PyTuple_GetItem(from, i);
        long code, column, scale;
        int is_identity;

        if (!has_layout(item, FIELD_SIZE, "field"))
            return FAILED;
        code = PyLong_AsLong(PyTuple_GetItem(item, FIELD_CODE));
        column = PyLong_AsLong(PyTuple_GetItem(item, FIELD_COLUMN));
        scale = PyLong_AsLong(PyTuple_GetItem(item, FIELD_SCALE));
        is_identity = PyObject_IsTrue(PyTuple_GetItem(item, FIELD_IS_IDENTITY));
        if (PyErr_Occurred())
            return FAILED;
        if (code < 0 || code > UINT8_MAX || !is_code((int)code) || column < 0 ||
            column >= columns || scale < 0 || scale > 38)
            return refuse("a field is out of range");
        field->code = (uint8_t)code;
        field->index = (int32_t)column;
        field->scale = (int16_t)scale;
        field->is_identity = (uint8_t)is_identity;
    }
    return DONE;
}

int read_bytes(PyObject *from, const uint8_t **data, Py_ssize_t *size)
{
    char *start;

    if (PyBytes_AsStringAndSize(from, &start, size) < 0)
        return FAILED;
    *data = (const uint8_t *)start;
    return DONE;
}

/* Parse what Python hands over under these names: all of them, and no other. */
static int read_named(PyObject *from, const char *format, char **names, ...)
{
    PyObject *nothing;
    va_list to;
    int got;

    if (!PyDict_Check(from))
        return refuse("what has names is not a dict");
    nothing = PyTuple_New(0);
    if (nothing == NULL)
        return FAILED;
    va_start(to, names);
    got = PyArg_VaParseTupleAndKeywords(nothing, from, format, names, to) ? DONE : FAILED;
    va_end(to);
    Py_DECREF(nothing);
    return got;
}

static int read_targets(Group *group, PyObject *from)
{
    static char *names[] = {"topic", "partitions", "key_prefix", "value_prefix", "counter",
                            "skips_origins", "feed", "number", NULL};

    group->target_count = PyTuple_Size(from);
    group->targets = allocate(group->target_count, sizeof *group->targets);
    if (group->targets == NULL)
        return FAILED;
    for (Py_ssize_t i = 0; i < group->target_count; i++) {
        Target *target = &group->targets[i];
        PyObject *key_prefix, *value_prefix;

        if (read_named(PyTuple_GetItem(from, i), "UlSSOpnn", names, &target->topic,
                       &target->partitions, &key_prefix, &value_prefix, &target->counter,
                       &target->skips_origins, &target->feed, &target->number) != DONE)
            return FAILED;
        if (target->partitions < 1)
            return refuse("a topic has no partition");
        if (read_bytes(key_prefix, &target->key_prefix, &target->key_prefix_size) != DONE ||
            read_bytes(value_prefix, &target->value_prefix, &target->value_prefix_size) != DONE)
            return FAILED;
    }
    return DONE;
}

static int read_conditions(Group *group, PyObject *from, Py_ssize_t columns)
{
    group->conditions = allocate(PyTuple_Size(from), sizeof *group->conditions);
    if (group->conditions == NULL)
        return FAILED;
    group->condition_count = PyTuple_Size(from);
    for (Py_ssize_t i = 0; i < group->condition_count; i++)
        if (condition_read(&group->conditions[i], PyTuple_GetItem(from, i), columns) != DONE)
            return FAILED;
    return DONE;
}

static int read_group(Group *group, PyObject *from, Py_ssize_t columns)
{
    static char *names[] = {"row", "names", "key", "key_is_union", "canonical", "table_part",
                            "surely_fits", "tombstones", "targets", "conditions", "inserting",
                            "updating", "deleting", NULL};
    PyObject *row, *key, *canonical, *table_part, *targets, *conditions, *candidates[OPERATIONS];
    Numbered numbered;

    if (read_named(from, "OO!OpOSnpO!O!OOO", names, &row, &PyTuple_Type, &group->names, &key,
                   &group->key_is_union, &canonical, &table_part, &group->surely_fits,
                   &group->tombstones, &PyTuple_Type, &targets, &PyTuple_Type, &conditions,
                   &candidates[INSERT], &candidates[UPDATE], &candidates[DELETE]) != DONE)
        return FAILED;
    group->has_key = key != Py_None;
    group->is_spread = canonical != Py_None;
    if (read_fields(&group->row, row, columns, is_value_code) != DONE)
        return FAILED;
    if (group->has_key && read_fields(&group->key, key, columns, is_value_code) != DONE)
        return FAILED;
    if (group->is_spread &&
        read_fields(&group->canonical, canonical, columns, is_canonical_code) != DONE)
        return FAILED;
    if (PyTuple_Size(group->names) != group->row.count)
        return refuse("not every field has a name");
    for (Py_ssize_t i = 0; i < group->row.count; i++)
        if (!PyBytes_Check(PyTuple_GetItem(group->names, i)))
            return refuse("a field's name is not bytes");
    if (read_bytes(table_part, &group->table_part, &group->table_part_size) != DONE)
        return FAILED;
    if (read_targets(group, targets) != DONE || read_conditions(group, conditions, columns) != DONE)
        return FAILED;
    numbered = (Numbered){group->targets, group->target_count, group->conditions,
                          group->condition_count, columns};
    for (int i = 0; i < OPERATIONS; i++)
        if (candidates_read(&group->candidates[i], candidates[i], &numbered) != DONE)
            return FAILED;
    return DONE;
}

int table_read(Table *table, PyObject *specification)
{
    PyObject *groups, *is_read;
    const uint8_t *read;
    Py_ssize_t read_size;
    unsigned int oid;

    if (!PyArg_ParseTuple(specification, "InpOSO!", &oid, &table->columns, &table->is_alone,
                          &table->unchanged, &is_read, &PyTuple_Type, &groups))
        return FAILED;
    Py_INCREF(specification);
    table->kept = specification;
    table->oid = oid;
    if (table->columns < 0 || table->columns > UINT16_MAX)
        return refuse("a tuple cannot have this many columns");
    if (read_bytes(is_read, &read, &read_size) != DONE)
        return FAILED;
    if (read_size != table->columns)
        return refuse("it is not said of every column whether it is read");
    table->is_read = allocate(table->columns, 1);
    table->groups = allocate(PyTuple_Size(groups), sizeof *table->groups);
    if (table->is_read == NULL || table->groups == NULL)
        return FAILED;
    memcpy(table->is_read, read, (size_t)read_size);
    table->group_count = PyTuple_Size(groups);
    for (Py_ssize_t i = 0; i < table->group_count; i++)
        if (read_group(&table->groups[i], PyTuple_GetItem(groups, i), table->columns) != DONE)
            return FAILED;
    return DONE;
}

void table_free(Table *table)
{
    for (Py_ssize_t i = 0; i < table->group_count; i++) {
        Group *group = &table->groups[i];

        for (int operation = 0; operation < OPERATIONS; operation++)
            candidates_free(&group->candidates[operation]);
        for (Py_ssize_t k = 0; k < group->condition_count; k++)
            condition_free(&group->conditions[k]);
        PyMem_Free(group->conditions);
        PyMem_Free(group->row.fields);
        PyMem_Free(group->key.fields);
        PyMem_Free(group->canonical.fields);
        PyMem_Free(group->targets);
    }
    PyMem_Free(table->groups);
    PyMem_Free(table->is_read);
    table->groups = NULL;
    table->is_read = NULL;
    table->group_count = 0;
    Py_XDECREF(table->kept);
    table->kept = NULL;
}
