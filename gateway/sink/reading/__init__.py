"""Reading of topics as any consumer does: committed records, decoded by the writer's schema.

It serves commands that show or compare published changes. The daemon does not read its tables'
topics.
"""
