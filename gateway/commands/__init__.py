"""Commands of `pgsluice`, one module each; `gateway.cli` parses and dispatches."""
