"""Row filters: the server's own rendering of a WHERE clause -> a function over tuples. Pure.

`parse` reads PostgreSQL's grammar, `analyze` types the tree and chooses the operators, `compile`
makes one Python function of it, `interpret` is the readable form that the function is tested
against, `transform` decides what an UPDATE becomes.
"""

from gateway.rowfilter.compile import RowFilter, combine, compile_filter
from gateway.rowfilter.errors import FilterEvaluationError, FilterSource
from gateway.rowfilter.index import Selection, selection_of
from gateway.rowfilter.transform import Action, decide_update, fill_unchanged, update_action

__all__ = [
    "Action",
    "FilterEvaluationError",
    "FilterSource",
    "RowFilter",
    "Selection",
    "combine",
    "compile_filter",
    "decide_update",
    "fill_unchanged",
    "selection_of",
    "update_action",
]
