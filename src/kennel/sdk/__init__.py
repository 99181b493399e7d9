"""Owns the client library; `_async` is written by hand, `_sync` is generated from it by tools/make_sync.py.

Programs import the public names from `kennel`; nothing here imports the server.
"""
