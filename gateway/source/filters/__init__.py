"""Row filters evaluated by a server: the evaluator, and checks of the texts sent to it.

`gateway.rowfilter.server` constructs the questions.
"""
