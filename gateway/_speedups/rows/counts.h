/* What was published, by topic: for END markers, and for whoever watches the gateway. */
#ifndef PGSLUICE_COUNTS_H
#define PGSLUICE_COUNTS_H

#include "change.h"

int count_names_make(void);
int hand_over(Work *work, PyObject *out, size_t *bytes);
int tell_counters(TakerList *counted, PyObject *touched);
int end_counter(PyObject *counter, Py_ssize_t *records, Py_ssize_t *number, Py_ssize_t *feed,
                PyObject **topic);
int end_counts(TakerList *ended, Taker *taker);
int tell_ended(TakerList *ended);

#endif
