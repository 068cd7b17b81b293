"""Topics as the job reads them: markers, schemas, positions, and records decoded to changes.

Records come from outside: their schemas, and the writers of markers, are checked here.
"""
