"""What a sleep leaves out, compared with what git itself says of checkouts of every kind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kennel import Kennel

pytestmark = pytest.mark.root

_MAKE = r"""
import os, random, subprocess, sys
dice = random.Random(int(sys.argv[1]))
NAMES = [b"a", b"b", b"build", b"cache", b"src", b"x.o", b"keep.o", b"notes.txt", b"#lit", b"!lit", b"trail ",
         b"sp ace", b"\xc3\xbcn\xc3\xaf", b"\xff\xfe", b"new\nline", b"[ab]x", b"*star", b"log.log", b"-dash",
         b"q\"uote", b"back\\slash"]
RULES = [b"*.o", b"!keep.o", b"/build/", b"build", b"cache/", b"**/cache/", b"a/**/b", b"a/*", b"!a/b", b"\\#lit",
         b"\\!lit", b"trail\\ ", b"sp ace", b"[ab]?", b"\\[ab\\]x", b"*.log", b"!*.log", b"*", b"!*/", b"!*.txt",
         b"/src/a", b"src/", b"\xff*", b"new*", b"", b"# a comment", b"?", b"\\*star", b"**", b"-dash",
         b"back\\\\slash"]
def git(where, *words):
    subprocess.run(["git", "-C", where, *words], check=True, capture_output=True)
def rules(most):
    return b"\n".join(dice.choice(RULES) for _ in range(dice.randrange(most))) + b"\n"
def grow(folder, depth, checkout):
    for name in dice.sample(NAMES, dice.randrange(2, 9)):
        path = os.path.join(folder, name)
        if depth < 5 and dice.random() < 0.3:
            os.mkdir(path)
            if dice.random() < 0.15 and depth:
                found(path, depth + 1)
            else:
                grow(path, depth + 1, checkout)
        elif dice.random() < 0.1:
            os.symlink(b"/etc", path)
        else:
            with open(path, "wb") as stream:
                stream.write(name * 9)
            if dice.random() < 0.15:
                tracked.append((checkout, path))
    if dice.random() < 0.3:
        with open(os.path.join(folder, b".gitignore"), "wb") as stream:
            stream.write(rules(5))
def found(path, depth=0):
    if dice.random() < 0.3:
        aside = b"/workspace/gits/%d" % dice.randrange(10**9)
        git(path, "init", "-q", b"--separate-git-dir=" + aside, ".")  # as submodules and worktrees have it
        os.makedirs(aside + b"/info", exist_ok=True)
        info = aside + b"/info/exclude"
    else:
        git(path, "init", "-q", ".")
        info = path + b"/.git/info/exclude"
        os.makedirs(os.path.dirname(info), exist_ok=True)
    with open(info, "wb") as stream:
        stream.write(rules(3))
    checkouts.append(path)
    grow(path, depth, path)
checkouts, tracked = [], []
os.makedirs("/workspace/gits")
with open("/root/.everywhere", "wb") as stream:
    stream.write(b"*.everywhere\n")
subprocess.run(["git", "config", "--global", "core.excludesFile", "/root/.everywhere"], check=True)
for number in range(int(sys.argv[2])):
    path = b"/workspace/r%d" % number
    os.mkdir(path)
    found(path)
    open(path + b"/some.everywhere", "w").close()
for checkout, path in tracked:
    git(checkout, "add", "-f", "--", os.path.relpath(path, checkout))
"""
_SEE = r"""
import json, os, subprocess, sys
files, folders, checkouts = [], [], []
for where, inner, names in os.walk(b"/workspace"):
    if b".git" in inner + names:
        checkouts.append(where)
    if b".git" in inner:
        inner.remove(b".git")
    if where == b"/workspace":
        inner.remove(b"gits")
    links = [name for name in inner if os.path.islink(os.path.join(where, name))]
    files += [os.path.join(where, name) for name in names + links]
    folders += [os.path.join(where, name) for name in inner if name not in links]
def ask(where, *words, given=b""):
    done = subprocess.run(["git", "-C", where, *words], input=given, capture_output=True)
    assert done.returncode in (0, 1), done.stderr
    return [os.path.join(where, each) for each in done.stdout.split(b"\0")[:-1]]
ignored, covered = [], []
for top in checkouts:
    ignored += [path for path in ask(top, "ls-files", "-z", "-oi", "--exclude-standard") if not path.endswith(b"/")]
    # Of every directory, the nearest checkout has the say.
    own = [path for path in folders if path.startswith(top + b"/")
           and max((c for c in checkouts if path.startswith(c + b"/")), key=len) == top]
    covered += ask(top, "check-ignore", "-z", "--stdin", given=b"\0".join(os.path.relpath(path, top) for path in own))
json.dump([[path.decode("latin-1") for path in rows] for rows in (files, folders, ignored, covered)], sys.stdout)
"""


def _python(box: Any, script: str, *words: str) -> str:
    result = box.exec(argv=["python3", "-c", script, *words], cwd="/", max_bytes=1 << 24)
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)


def _compare(itx: Kennel, seed: int, count: int) -> None:
    box = itx.sandboxes.get(f"/sandboxes/left-out-{seed}").create()
    _python(box, _MAKE, str(seed), str(count))
    files, folders, ignored, covered = (set(rows) for rows in json.loads(_python(box, _SEE)))
    assert ignored
    box.sleep()
    left, still, *_ = (set(rows) for rows in json.loads(_python(box, _SEE)))
    assert files - left == ignored
    assert left <= files
    gone = {path for path in folders - still if not any(path.startswith(f"{above}/") for above in folders - still)}
    assert gone <= covered, "a directory went that git does not ignore"
    box.destroy()


def test_what_goes_is_what_git_ignores(itx: Kennel) -> None:
    _compare(itx, 1, 8)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 14))
def test_what_goes_is_what_git_ignores_in_many_checkouts(itx: Kennel, seed: int) -> None:
    _compare(itx, seed, 25)


def test_a_checkout_in_an_ignored_directory_stays_as_git_clean_leaves_it(itx: Kennel) -> None:
    box = itx.sandboxes.get("/sandboxes/left-out-within").create()
    script = """
        git init -q outer && cd outer && printf 'trees/\\nalone\\n' > .gitignore &&
        mkdir -p trees/old trees/deep/er alone && touch trees/old/f trees/g trees/deep/h &&
        git init -q trees/deep/er/work && git init -q alone/too && touch alone/y && cd trees/deep/er/work &&
        printf '*.o\\n' > .gitignore && touch unsaved x.o
    """
    done = box.exec(script)
    assert done.exit_code == 0, done.stderr
    box.sleep()
    seen = box.exec("find outer -name .git -prune -o -type f -print | sort").stdout.split()
    assert seen == ["outer/.gitignore", "outer/trees/deep/er/work/.gitignore", "outer/trees/deep/er/work/unsaved"]
    assert box.exec("git -C outer/trees/deep/er/work status -s && git -C outer/alone/too status -s").exit_code == 0
    box.destroy()
