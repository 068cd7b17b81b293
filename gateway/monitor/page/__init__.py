"""Status page at ``/``, for people: what is wrong first, then figures, tables and the log. Pure.

The page is complete without JavaScript: search, filter and portions are links and a form, answered
by the server. Reading of servers does not belong here; all content is that of ``/status``.
"""
