"""The commands of `pgsluice`, one module each; `gateway.cli` parses and dispatches."""
