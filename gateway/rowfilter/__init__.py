"""Row filters: compilation of the server's rendering of a WHERE clause into a function. Pure.

`parse` reads PostgreSQL's grammar, `analyze` types the tree and chooses the operators, `compile`
makes one Python function of it, `conditions` a table if it only compares columns with constants,
`interpret` is the readable reference of both, and `transform` decides what an UPDATE becomes.
Anything outside the exact core is left to the server: `question` builds the query.
"""

from gateway.rowfilter.errors import FilterEvaluationError, FilterSource
from gateway.rowfilter.evaluation.compile import (
    RowFilter,
    asks,
    combine,
    compile_filter,
    place_filter,
)
from gateway.rowfilter.evaluation.conditions import Condition, condition_of
from gateway.rowfilter.evaluation.index import Selection, selection_of
from gateway.rowfilter.server.question import Answer, AskedColumn, JudgedRow, Question
from gateway.rowfilter.transform import Action, decide_update, fill_unchanged, update_action

__all__ = [
    "Action",
    "Answer",
    "AskedColumn",
    "Condition",
    "FilterEvaluationError",
    "FilterSource",
    "JudgedRow",
    "Question",
    "RowFilter",
    "Selection",
    "asks",
    "combine",
    "compile_filter",
    "condition_of",
    "decide_update",
    "fill_unchanged",
    "place_filter",
    "selection_of",
    "update_action",
]
