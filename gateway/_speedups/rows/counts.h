/* Numbers of published records by topic: for END markers and metrics. */
#ifndef PGSLUICE_COUNTS_H
#define PGSLUICE_COUNTS_H

#include "change.h"

int count_names_make(void);
int hand_over(Work *work, PyObject *out, size_t *bytes);
int report_counters(TargetList *counted, PyObject *touched);
int end_counter(PyObject *counter, Py_ssize_t *records, Py_ssize_t *number, Py_ssize_t *feed,
                PyObject **topic);
int end_counts(TargetList *ended, Target *target);
int report_ended(TargetList *ended);

#endif
