"""The asynchronous half of the SDK; the source that the synchronous half is generated from."""
