"""Pure records and rules: no I/O, no clock, no keys; importable in a workflow without pass-through."""
