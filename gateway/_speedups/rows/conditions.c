#include "conditions.h"

#include <string.h>

enum { DEEPEST = 100 };

static int refuse(const char *why)
{
    PyErr_SetString(PyExc_ValueError, why);
    return FAILED;
}

static int parse_operand(Operand *to, int code, PyObject *from)
{
    char *text;
    Py_ssize_t size;

    switch (code) {
    case AS_TEXT:
    case AS_BPCHAR:
    case AS_DECIMAL:
    case AS_WHOLE:
        if (PyBytes_AsStringAndSize(from, &text, &size) < 0)
            return FAILED;
        to->text = (const uint8_t *)text;
        to->size = (size_t)size;
        return DONE;
    case AS_FLOAT:
    case AS_DOUBLE:
        to->real = PyFloat_AsDouble(from);
        break;
    case AS_INTEGER:
    case AS_BOOLEAN:
    case AS_DATE:
    case AS_TIMESTAMP:
    case AS_TIMESTAMPTZ:
        to->number = PyLong_AsLongLong(from);
        break;
    default:
        return refuse("a condition has no such code");
    }
    return PyErr_Occurred() ? FAILED : DONE;
}

static int read_column(Condition *to, PyObject *from, Py_ssize_t columns)
{
    to->column = PyLong_AsSsize_t(PyTuple_GetItem(from, CONDITION_COLUMN));
    if (PyErr_Occurred())
        return FAILED;
    return to->column >= 0 && to->column < columns ? DONE : refuse("there is no such column");
}

static int read_comparison(Condition *to, PyObject *from, Py_ssize_t columns)
{
    PyObject *constants = PyTuple_GetItem(from, CONDITION_CONSTANTS);
    long orders = PyLong_AsLong(PyTuple_GetItem(from, CONDITION_ORDERS));

    if (PyErr_Occurred() || read_column(to, from, columns) != DONE)
        return FAILED;
    if (orders < 0 || orders > (LESS | EQUAL | GREATER))
        return refuse("a comparison is out of range");
    to->orders = (uint8_t)orders;
    if (!PyTuple_Check(constants) || PyTuple_Size(constants) < 1)
        return refuse("a comparison has no constant");
    to->constants = PyMem_Calloc((size_t)PyTuple_Size(constants), sizeof *to->constants);
    if (to->constants == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    to->count = PyTuple_Size(constants);
    for (Py_ssize_t i = 0; i < to->count; i++)
        if (parse_operand(&to->constants[i], to->code, PyTuple_GetItem(constants, i)) != DONE)
            return FAILED;
    return DONE;
}

static int read_part(Condition *to, PyObject *from, Py_ssize_t columns, int depth);

static int read_parts(Condition *to, PyObject *from, Py_ssize_t columns, int depth)
{
    PyObject *parts = PyTuple_GetItem(from, CONDITION_PARTS);
    Py_ssize_t count;

    if (!PyTuple_Check(parts))
        return refuse("the parts of a condition are not a tuple");
    count = PyTuple_Size(parts);
    if (to->code == NOT && count != 1)
        return refuse("NOT has one part");
    to->parts = PyMem_Calloc(count > 0 ? (size_t)count : 1, sizeof *to->parts);
    if (to->parts == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    to->count = count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (read_part(&to->parts[i], PyTuple_GetItem(parts, i), columns, depth + 1) != DONE)
            return FAILED;
    return DONE;
}

static int read_part(Condition *to, PyObject *from, Py_ssize_t columns, int depth)
{
    PyObject *letter;
    Py_UCS4 code;

    if (depth > DEEPEST)
        return refuse("a condition is nested too deeply");
    if (!has_layout(from, CONDITION_SIZE, "condition"))
        return FAILED;
    letter = PyTuple_GetItem(from, CONDITION_CODE);
    if (!PyUnicode_Check(letter) || PyUnicode_GetLength(letter) != 1)
        return refuse("a condition's code is not a letter");
    code = PyUnicode_ReadChar(letter, 0);
    if (code > 127)
        return refuse("a condition has no such code");
    to->code = (uint8_t)code;
    switch (to->code) {
    case ALL_OF:
    case ONE_OF:
    case NOT:
        return read_parts(to, from, columns, depth);
    case IS_NULL:
        return read_column(to, from, columns);
    default:
        return read_comparison(to, from, columns);
    }
}

int condition_read(Condition *to, PyObject *from, Py_ssize_t columns)
{
    return read_part(to, from, columns, 0);
}

void condition_free(Condition *condition)
{
    for (Py_ssize_t i = 0; condition->parts != NULL && i < condition->count; i++)
        condition_free(&condition->parts[i]);
    PyMem_Free(condition->parts);
    PyMem_Free(condition->constants);
}

static int read_operand(int code, const Value *value, Operand *to)
{
    const uint8_t *text = value->text;
    size_t size = value->size;

    switch (code) {
    case AS_BPCHAR:
        trim_blanks(text, &size);
        /* fall through */
    case AS_TEXT:
        to->text = text;
        to->size = size;
        return DONE;
    case AS_DECIMAL:
        to->text = text;
        to->size = size;
        return is_decimal(text, size) ? DONE : NOT_MINE;
    case AS_WHOLE:
        to->text = text;
        to->size = size;
        return read_integer(text, size, &to->number);
    case AS_INTEGER:
        return read_integer(text, size, &to->number);
    case AS_BOOLEAN:
        return read_boolean(text, size, &to->number);
    case AS_FLOAT:
        return read_float(text, size, &to->real);
    case AS_DOUBLE:
        return read_double(text, size, &to->real);
    default:
        return read_moment(code, text, size, &to->number);
    }
}

static int order_of(int less, int equal)
{
    return less ? LESS : equal ? EQUAL : GREATER;
}

static int order_of_texts(const Operand *value, const Operand *constant)
{
    size_t common = value->size < constant->size ? value->size : constant->size;
    int got = common == 0 ? 0 : memcmp(value->text, constant->text, common);

    if (got != 0)
        return order_of(got < 0, 0);
    return order_of(value->size < constant->size, value->size == constant->size);
}

static int order_to(int code, const Operand *value, const Operand *constant)
{
    int got;

    switch (code) {
    case AS_TEXT:
    case AS_BPCHAR:
        return order_of_texts(value, constant);
    case AS_DECIMAL:
    case AS_WHOLE:
        got = compare_decimals(value->text, value->size, constant->text, constant->size);
        return order_of(got < 0, got == 0);
    case AS_FLOAT:
    case AS_DOUBLE:
        return order_of(value->real < constant->real, value->real == constant->real);
    default:
        return order_of(value->number < constant->number, value->number == constant->number);
    }
}

/* How the value stands to the constant; EQUAL or not to several, which are sorted. */
static int order_among(const Condition *condition, const Operand *value)
{
    Py_ssize_t first = 0, last = condition->count - 1;

    if (last == 0)
        return order_to(condition->code, value, condition->constants);
    while (first <= last) {
        Py_ssize_t middle = first + (last - first) / 2;
        int order = order_to(condition->code, value, &condition->constants[middle]);

        if (order == EQUAL)
            return EQUAL;
        if (order == LESS)
            last = middle - 1;
        else
            first = middle + 1;
    }
    return LESS;
}

/* Whether `values` are as the condition says: NOT_MINE where that is not known here. */
int condition_holds(const Condition *condition, const Value *values, int *verdict)
{
    const Value *value = &values[condition->column];
    Operand operand;
    int got = DONE;

    switch (condition->code) {
    case ALL_OF:
        *verdict = 1;
        for (Py_ssize_t i = 0; got == DONE && *verdict && i < condition->count; i++)
            got = condition_holds(&condition->parts[i], values, verdict);
        return got;
    case ONE_OF:
        *verdict = 0;
        for (Py_ssize_t i = 0; got == DONE && !*verdict && i < condition->count; i++)
            got = condition_holds(&condition->parts[i], values, verdict);
        return got;
    case NOT:
        got = condition_holds(condition->parts, values, verdict);
        *verdict = !*verdict;
        return got;
    default:
        break;
    }
    if (value->kind == VALUE_UNCHANGED)
        return NOT_MINE;
    *verdict = condition->code == IS_NULL ? value->kind == VALUE_NULL : 0;
    if (condition->code == IS_NULL || value->kind == VALUE_NULL)
        return DONE;
    got = read_operand(condition->code, value, &operand);
    if (got == DONE)
        *verdict = (condition->orders & order_among(condition, &operand)) != 0;
    return got;
}
