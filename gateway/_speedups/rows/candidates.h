/* Targets that may receive a row: gateway.routing.row.targets.Candidates. */
#ifndef PGSLUICE_CANDIDATES_H
#define PGSLUICE_CANDIDATES_H

#include "conditions.h"

typedef struct Target Target;

typedef struct {
    Target *target;
    const Condition *condition; /* decides about the row; NULL: `passes` does */
    PyObject *passes;           /* borrowed; None lets every row pass */
} Candidate;

typedef struct {
    Candidate *items;
    size_t count, room;
} CandidateList;

/* Those under one text of a column. */
typedef struct {
    CandidateList found;
    const uint8_t *text;
    size_t size;
    uint32_t hash;
} Entry;

typedef struct {
    Py_ssize_t column;
    CandidateList null;
    Entry *entries; /* by their hash, the next free place where it is occupied; a power of two */
    size_t room;
    PyObject *lookup; /* borrowed; places in `looked_up` by text, instead of entries; or NULL */
    CandidateList looked_up;
} Index;

typedef struct {
    CandidateList everyone, others;
    Index *indexes;
    Py_ssize_t index_count;
    int has_lookup; /* whether one of the indexes has a look-up */
} Candidates;

/* Targets and conditions to which the numbers of a specification refer. */
typedef struct {
    Target *targets;
    Py_ssize_t target_count;
    const Condition *conditions;
    Py_ssize_t condition_count;
    Py_ssize_t columns;
} Numbered;

int candidates_read(Candidates *to, PyObject *from, const Numbered *of);
void candidates_free(Candidates *candidates);
int candidates_find(const Candidates *among, const Value *values, CandidateList *found);
int candidates_find_both(const Candidates *among, const Value *old_values, const Value *new_values,
                         CandidateList *before, CandidateList *found);

#endif
