"""Everything in C: its sources, the one way to load it, and the types of what it offers.

`loader` imports a module or says why there is none; ``tools/build_rows.py`` compiles all of them.
Each does what a module in Python does as well, which is its reference and its fallback. The
meaning is defined in `gateway.routing`, and implemented here for the usual cases; everything
unusual is handed back.
"""
