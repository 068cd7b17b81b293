"""Row filters evaluated by a server: the evaluator, and checks of the texts sent to it.

The questions are made in `gateway.rowfilter.server`.
"""
