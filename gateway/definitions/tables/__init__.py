"""Single tables of a plan: shape, key, topic, and descriptions of dropped tables. Pure.

The catalog's description of a table arrives as a value and is stored as text that outlasts the
table. How publications and subscriptions combine over tables is decided one folder up.
"""
