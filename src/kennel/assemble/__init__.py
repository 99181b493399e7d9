"""Owns the wiring: settings in, one running service out; the only place that knows every adapter.

Run as `python -m kennel.assemble node|control|gateway` by the supervisor, one file a role. Invariant: nothing is
decided here; a role imports only what it needs: node never loads a web framework, gateway never a database.
"""
