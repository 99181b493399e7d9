"""Owns the start of a service: reads the settings, sets up its log, imports its role and nothing else."""

from __future__ import annotations

import importlib
import logging
import sys

from kennel import steps
from kennel.settings import Settings

ROLES = ("node", "control", "gateway")


def main() -> None:
    role = sys.argv[1]
    if role not in ROLES:
        sys.exit(f"a role is one of {', '.join(ROLES)}")
    settings = Settings()  # type: ignore[call-arg]  # every field has a default or a variable
    form = "%(asctime)s %(levelname)s %(name)s %(message)s"
    logging.basicConfig(level=settings.log_level, format=form, stream=sys.stderr)
    if settings.steps:
        steps.watch(settings.data)
    importlib.import_module(f"kennel.assemble.{role}").run(settings)


if __name__ == "__main__":
    main()
