"""What `from kennel import …` offers, and what merely importing it costs."""

from __future__ import annotations

import subprocess
import sys

import kennel


def test_all_is_what_is_visible() -> None:
    assert sorted(kennel.__all__) == kennel.__all__
    assert dir(kennel) == kennel.__all__
    for name in kennel.__all__:
        value = getattr(kennel, name)
        assert value.__name__ == name
    assert set(kennel._HOME) == set(kennel.__all__)


def test_every_public_class_of_a_home_is_offered() -> None:
    from kennel.wire import errors

    tree = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert tree <= set(kennel.__all__)


def test_importing_it_imports_nothing_heavy() -> None:
    script = "import kennel, sys; print([m for m in ('httpcore2', 'httpx2', 'msgspec', 'asyncio') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(kennel, "NoSuchName")
