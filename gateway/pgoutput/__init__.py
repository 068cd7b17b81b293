"""pgoutput, protocol versions 1 to 4: bytes to messages. No I/O."""
