"""Owns `kennel completion`: the script by which a shell completes commands and flags.

Called by `__main__`. Invariant: it is printed, never installed: a person's shell files are the person's.
"""

from __future__ import annotations

import sys
from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion script of a shell.

    bash: source <(kennel completion bash)    zsh: kennel completion zsh > a folder of $fpath, as _kennel
    fish: kennel completion fish > ~/.config/fish/completions/kennel.fish
    """
    from kennel.cli.commands import app

    sys.stdout.write(app.generate_completion(shell=shell, prog_name="kennel"))
