/* Filters that compare columns with constants: gateway.rowfilter.evaluation.conditions. */
#ifndef PGSLUICE_CONDITIONS_H
#define PGSLUICE_CONDITIONS_H

#include "../layouts.h"
#include "values.h"

typedef struct {
    uint8_t kind; /* t, n or u as on the wire */
    const uint8_t *text;
    size_t size;
} Value;

/* A constant, or a value that is compared with it: of the three, what the code says. */
typedef struct {
    int64_t number;
    double real;
    const uint8_t *text; /* a constant's is borrowed from the specification */
    size_t size;
} Operand;

typedef struct Condition Condition;

struct Condition {
    uint8_t code;   /* ALL_OF, ONE_OF, NOT, IS_NULL, or how the column's text is read */
    uint8_t orders; /* of LESS, EQUAL and GREATER */
    Py_ssize_t column;
    Py_ssize_t count; /* of parts or constants */
    Condition *parts;
    Operand *constants;
};

int condition_read(Condition *to, PyObject *from, Py_ssize_t columns);
void condition_free(Condition *condition);
int condition_holds(const Condition *condition, const Value *values, int *verdict);

#endif
