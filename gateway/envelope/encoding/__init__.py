"""Rows as Avro bytes: the generated encoders of one relation, and Avro's own primitives. Pure.

This is the hot path of the interpreted form. Schemas, headers and markers are one folder up.
"""
