"""Single tables of a plan: shape, name, topic, and what is known of them when they are gone. Pure.

What the catalog says of a table comes in as a value and leaves as text that outlasts the table.
How publications and subscriptions combine over tables is decided one folder up.
"""
