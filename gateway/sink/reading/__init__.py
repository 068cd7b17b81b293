"""Topics read as any consumer reads them: committed records only, decoded by the writer's schema.

For commands that show or compare what was published. The daemon does not read its tables' topics.
"""
