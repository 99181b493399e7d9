"""Owns the `kennel` command: one file per group of commands, put together in `__main__`.

Invariant: a command imports what is heavy only when it runs, so that the first byte of output is not late.
"""
