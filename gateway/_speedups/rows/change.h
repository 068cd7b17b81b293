/* One change: a frame in, records out; or NOT_MINE, and nothing has happened. */
#ifndef PGSLUICE_CHANGE_H
#define PGSLUICE_CHANGE_H

#include "draft.h"

int route_change(Work *work, const uint8_t *frame, size_t size, size_t at);
void work_forget(Work *work);
int decide(Work *work, const Candidate *candidate, int is_old, int *verdict);
int emit(Work *work, Group *group, Target *target, const Drafts *drafts, int action, int is_plain);
void drop(Drafts *drafts);

#endif
