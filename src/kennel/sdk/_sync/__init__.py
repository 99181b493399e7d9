# Generated from sdk/_async by tools/make_sync.py; change it there.
"""The synchronous half of the SDK; the source that the synchronous half is generated from."""
