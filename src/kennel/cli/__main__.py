"""Owns the start and the end of `kennel`: which command runs, and what its failure looks like and exits with.

Called by the installed script and `python -m kennel.cli`. Invariant: exit code 0 for success, the remote command's
for `exec`, 1 for an error, 2 for a misuse of the command line, 130 for Ctrl-C, 141 when nobody reads the output.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence

from kennel.wire.errors import KennelError, error

LEADING = ("--data", "--project", "--url")
"""Flags with a value that may also stand before the command."""

MISUSE, INTERRUPTED, UNREAD = 2, 130, 141


def main() -> None:
    """Runs the command line of this process and ends it."""
    # Starting is all imports: collecting after every 700 objects took 20 ms of 165, freeing them at the end 15.
    gc.set_threshold(200_000, 50, 50)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this process
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    code = run(sys.argv[1:])
    os._exit(flushed(code))


def flushed(code: int) -> int:
    """Writes out what is left; `code`, or the one that says that it could not be written."""
    from kennel.cli.output import complain

    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return UNREAD
    except OSError as failure:
        complain("FILESYSTEM_ERROR", str(failure))
        code = code or 1
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    return code


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; errors are on stderr by then."""
    from cyclopts import CycloptsError, UnknownCommandError

    from kennel.cli.commands import app
    from kennel.cli.output import complain, complain_of

    try:
        result = app(in_order(arguments), exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as failure:
        # The library's own text for this one imports every command to find names that are near.
        unknown = isinstance(failure, UnknownCommandError) and failure.unused_tokens
        message = f"there is no command {unknown[0]!r}" if unknown else str(failure)
        complain("USAGE", message, hint="'kennel --help' and 'kennel COMMAND --help' say what there is")
        return MISUSE
    except KennelError as failure:
        complain_of(failure)
        return MISUSE if failure.code == "USAGE" else 1
    except ImportError as failure:
        absent = error("NOT_SUPPORTED", f"this command needs parts that are not installed ({failure})")
        complain(absent.code, absent.message, hint="install kennel with its 'server' extra")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What is left in the buffer has nowhere to go either.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except OSError as failure:
        complain("FILESYSTEM_ERROR", str(failure))
        return 1
    return result if isinstance(result, int) else 0


def in_order(arguments: Sequence[str]) -> list[str]:
    """The same words with leading flags moved behind the command's own, so that each command need only look there."""
    words, leading = list(arguments), []
    while words and words[0].startswith("--"):
        if words[0] in LEADING and len(words) > 1:
            leading += [words.pop(0), words.pop(0)]
        elif words[0] == "--json" or words[0].startswith(tuple(f"{flag}=" for flag in LEADING)):
            leading.append(words.pop(0))
        else:
            break
    end = words.index("--") if "--" in words else len(words)
    return words[:end] + leading + words[end:]


if __name__ == "__main__":
    main()
