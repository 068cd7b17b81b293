"""Conversion of binary send formats to the text of the type's output function. Pure.

pgoutput with ``binary`` sends a column by its type's send function where there is one. Everything
after the decoder works on text, so each type gets a function that converts one to the other,
exactly, as a session with the gateway's settings prints it: DateStyle ISO, IntervalStyle postgres,
TimeZone UTC, extra_float_digits 1 or more, bytea_output hex, UTF8.
"""

from gateway.pgtypes.binary.compile import Describe, compile_to_text
from gateway.pgtypes.binary.info import FAULTS, Attribute, ToText, TypeInfo

__all__ = ["FAULTS", "Attribute", "Describe", "ToText", "TypeInfo", "compile_to_text"]
