#include "table.h"

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

int read_bytes(PyObject *from, const uint8_t **data, Py_ssize_t *size)
{
    char *start;

    if (PyBytes_AsStringAndSize(from, &start, size) < 0)
        return FAILED;
    *data = (const uint8_t *)start;
    return DONE;
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
        int is_identity, is_array, is_range;

        if (!has_layout(item, FIELD_SIZE, "field"))
            return FAILED;
        code = PyLong_AsLong(PyTuple_GetItem(item, FIELD_CODE));
        column = PyLong_AsLong(PyTuple_GetItem(item, FIELD_COLUMN));
        scale = PyLong_AsLong(PyTuple_GetItem(item, FIELD_SCALE));
        is_identity = PyObject_IsTrue(PyTuple_GetItem(item, FIELD_IS_IDENTITY));
        is_array = PyObject_IsTrue(PyTuple_GetItem(item, FIELD_IS_ARRAY));
        is_range = PyObject_IsTrue(PyTuple_GetItem(item, FIELD_IS_RANGE));
        if (PyErr_Occurred() ||
            read_bytes(PyTuple_GetItem(item, FIELD_UNAVAILABLE), &field->unavailable,
                       &field->unavailable_size) != DONE)
            return FAILED;
        if (code < 0 || code > UINT8_MAX || !is_code((int)code) || column < 0 ||
            column >= columns || scale < 0 || scale > 38)
            return refuse("a field is out of range");
        field->code = (uint8_t)code;
        field->index = (int32_t)column;
        field->scale = (int16_t)scale;
        field->is_identity = (uint8_t)is_identity;
        field->is_array = (uint8_t)is_array;
        field->is_range = (uint8_t)is_range;
    }
    return DONE;
}

static int read_targets(Group *group, PyObject *from)
{
    if (!PyTuple_Check(from))
        return refuse("targets are not a tuple");
    group->target_count = PyTuple_Size(from);
    group->targets = allocate(group->target_count, sizeof *group->targets);
    if (group->targets == NULL)
        return FAILED;
    for (Py_ssize_t i = 0; i < group->target_count; i++) {
        Target *target = &group->targets[i];
        PyObject *item = PyTuple_GetItem(from, i);

        if (!has_layout(item, TARGET_SIZE, "target"))
            return FAILED;
        target->topic = PyTuple_GetItem(item, TARGET_TOPIC);
        target->partitions = PyLong_AsLong(PyTuple_GetItem(item, TARGET_PARTITIONS));
        target->counter = PyTuple_GetItem(item, TARGET_COUNTER);
        target->skips_origins = PyObject_IsTrue(PyTuple_GetItem(item, TARGET_SKIPS_ORIGINS));
        target->feed = PyLong_AsSsize_t(PyTuple_GetItem(item, TARGET_FEED));
        target->number = PyLong_AsSsize_t(PyTuple_GetItem(item, TARGET_NUMBER));
        if (PyErr_Occurred())
            return FAILED;
        if (!PyUnicode_Check(target->topic))
            return refuse("a topic is not a text");
        if (target->partitions < 1)
            return refuse("a topic has no partition");
        if (read_bytes(PyTuple_GetItem(item, TARGET_KEY_PREFIX), &target->key_prefix,
                       &target->key_prefix_size) != DONE ||
            read_bytes(PyTuple_GetItem(item, TARGET_VALUE_PREFIX), &target->value_prefix,
                       &target->value_prefix_size) != DONE)
            return FAILED;
    }
    return DONE;
}

static int read_conditions(Group *group, PyObject *from, Py_ssize_t columns)
{
    if (!PyTuple_Check(from))
        return refuse("conditions are not a tuple");
    group->conditions = allocate(PyTuple_Size(from), sizeof *group->conditions);
    if (group->conditions == NULL)
        return FAILED;
    group->condition_count = PyTuple_Size(from);
    for (Py_ssize_t i = 0; i < group->condition_count; i++)
        if (condition_read(&group->conditions[i], PyTuple_GetItem(from, i), columns) != DONE)
            return FAILED;
    return DONE;
}

static int read_names(Group *group, PyObject *from)
{
    if (!PyTuple_Check(from) || PyTuple_Size(from) != group->row.count)
        return refuse("not every field has a name");
    for (Py_ssize_t i = 0; i < group->row.count; i++)
        if (!PyBytes_Check(PyTuple_GetItem(from, i)))
            return refuse("a field's name is not bytes");
    group->names = from;
    return DONE;
}

static int read_group(Group *group, PyObject *from, Py_ssize_t columns)
{
    static const int candidates[OPERATIONS] = {
        [INSERT] = PROJECTION_INSERTING,
        [UPDATE] = PROJECTION_UPDATING,
        [DELETE] = PROJECTION_DELETING,
    };
    PyObject *key, *canonical, *place;
    Numbered numbered;

    if (!has_layout(from, PROJECTION_SIZE, "projection"))
        return FAILED;
    key = PyTuple_GetItem(from, PROJECTION_KEY);
    canonical = PyTuple_GetItem(from, PROJECTION_CANONICAL);
    place = PyTuple_GetItem(from, PROJECTION_PLACE);
    group->has_key = key != Py_None;
    group->is_spread = canonical != Py_None;
    group->has_place = place != Py_None;
    group->needs_full = PyObject_IsTrue(PyTuple_GetItem(from, PROJECTION_NEEDS_FULL));
    group->key_is_union = PyObject_IsTrue(PyTuple_GetItem(from, PROJECTION_KEY_IS_UNION));
    group->names_keys = PyObject_IsTrue(PyTuple_GetItem(from, PROJECTION_NAMES_KEYS));
    group->tombstones = PyObject_IsTrue(PyTuple_GetItem(from, PROJECTION_TOMBSTONES));
    group->surely_fits = PyLong_AsSsize_t(PyTuple_GetItem(from, PROJECTION_SURELY_FITS));
    if (PyErr_Occurred())
        return FAILED;
    if (read_fields(&group->row, PyTuple_GetItem(from, PROJECTION_ROW), columns, is_value_code) !=
        DONE)
        return FAILED;
    if (group->has_key && read_fields(&group->key, key, columns, is_value_code) != DONE)
        return FAILED;
    if (group->has_place && read_fields(&group->place, place, columns, is_value_code) != DONE)
        return FAILED;
    if (group->is_spread &&
        read_fields(&group->canonical, canonical, columns, is_canonical_code) != DONE)
        return FAILED;
    if (read_names(group, PyTuple_GetItem(from, PROJECTION_NAMES)) != DONE ||
        read_bytes(PyTuple_GetItem(from, PROJECTION_TABLE_PART), &group->table_part,
                   &group->table_part_size) != DONE ||
        read_targets(group, PyTuple_GetItem(from, PROJECTION_TARGETS)) != DONE ||
        read_conditions(group, PyTuple_GetItem(from, PROJECTION_CONDITIONS), columns) != DONE)
        return FAILED;
    numbered = (Numbered){group->targets, group->target_count, group->conditions,
                          group->condition_count, columns};
    for (int i = 0; i < OPERATIONS; i++)
        if (candidates_read(&group->candidates[i], PyTuple_GetItem(from, candidates[i]),
                            &numbered) != DONE)
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
        PyMem_Free(group->place.fields);
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
