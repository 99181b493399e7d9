"""Owns `kennel image build` and `kennel image rm`: images of this machine's node, made and removed by root.

Run as `python -m kennel.installation.images`. Invariant: an image that a sandbox of this installation was made on is
not removed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from kennel.adapters.images import build
from kennel.adapters.images.store import ImageStore
from kennel.installation import layout
from kennel.node.record import Records
from kennel.settings import Settings
from kennel.wire.errors import KennelError


def main() -> None:
    parser = argparse.ArgumentParser(prog="kennel image", description="Build or remove an image on this machine.")
    parser.add_argument("verb", choices=("build", "rm"))
    parser.add_argument("name")
    parser.add_argument("--data", type=Path, help="where everything is kept")
    options = parser.parse_args()
    settings = Settings(data=options.data.absolute()) if options.data else Settings()  # type: ignore[call-arg]
    if os.geteuid() != 0:
        sys.exit("error FORBIDDEN: images belong to the machine; run this as root")
    layout.make(settings)
    node = settings.data / "node"
    try:
        if options.verb == "build":
            sys.exit(build.main([options.name, "--images-dir", str(node / "images")]))
        records = Records(node / "sandboxes").all() if (node / "sandboxes").is_dir() else []
        ImageStore(node / "images").remove(options.name, {record.image_digest for record in records})
        print(f"removed {options.name}")
    except KennelError as refused:
        print(f"error {refused.code}: {refused.message}", file=sys.stderr)
        if refused.hint:
            print(f"hint: {refused.hint}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
