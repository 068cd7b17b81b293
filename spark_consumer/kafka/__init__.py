"""Topics as the job reads them: markers, schemas, positions, and records decoded to changes.

Records come from outside: what they may be, and whose markers are believed, is checked here.
"""
