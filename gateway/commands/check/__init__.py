"""``pgsluice check``: a preflight with a remedy for each finding.

Nothing is created or changed. Every part is checked, even if another has failed, so that one run
shows everything there is to repair. `command` goes through the parts; the findings about each are
in a module of its name.
"""
