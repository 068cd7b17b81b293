"""Decoding of pgoutput messages, protocol versions 1 to 4. No I/O."""
