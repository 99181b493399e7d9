"""The guest brings its own interpreter and loader: an image without Python, bash, even without glibc, will do."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from installation import Installation
from kennel import Kennel, Unsupported
from kennel.adapters.images.pack import pack
from kennel.adapters.images.store import ImageInfo

PROGRAM = r"""
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char word[64];
    int got = read(0, word, sizeof word);
    printf("musl says %.*s and %s\n", got, word, argc > 1 ? argv[1] : "nothing");
    return 7;
}
"""


@pytest.fixture(scope="module")
def image(installation: Installation) -> Iterator[str]:
    """A tree of busybox and one program linked against musl, as an image of the shared installation."""
    for tool in ("musl-gcc", "busybox"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    images = installation.data / "node/images"
    with tempfile.TemporaryDirectory(dir=images.parent) as folder:
        tree = Path(folder, "tree")
        for part in ("bin", "lib", "etc", "proc", "dev", "sys", "tmp", "usr", "root"):
            (tree / part).mkdir(parents=True)
        shutil.copy(shutil.which("busybox") or "", tree / "bin/busybox")
        for applet in ("sh", "ls", "cat", "id", "sleep", "echo"):
            (tree / "bin" / applet).symlink_to("busybox")
        Path(folder, "program.c").write_text(PROGRAM)
        subprocess.run(["musl-gcc", f"{folder}/program.c", "-o", str(tree / "bin/program")], check=True)
        loader = next(Path("/lib").glob("ld-musl-*.so.1"))
        shutil.copy(loader.resolve(), tree / "lib" / loader.name)
        (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nana:x:7:7::/tmp:/bin/sh\n")
        (tree / "etc/group").write_text("root:x:0:\nana:x:7:\n")
        yield pack(tree, Path(folder), images, ImageInfo("tiny", "", "erofs")).digest


def test_commands_run_on_an_image_with_nothing_in_it(itx: Kennel, image: str) -> None:
    box = itx.sandboxes.get(f"/sandboxes/tiny-{uuid.uuid4().hex[:8]}").create(image="tiny")
    try:
        assert box.info().image_digest == image
        assert box.exec("ls /usr /lib | cat").stdout.startswith("/lib:")
        done = box.exec(argv=["program", "argument"], stdin="stdin")
        assert (done.stdout, done.exit_code) == ("musl says stdin and argument\n", 7)
        assert box.exec("id -u", user="ana").stdout == "7\n"
        assert box.exec(argv=["python3"]).exit_code == 127
        late = box.exec("sleep 30", timeout=0.5)
        assert (late.exit_code, late.timed_out) == (124, True)
        box.exec("echo kept > /workspace/file")
        box.sleep()
        assert box.exec("cat /workspace/file").stdout == "kept\n"
    finally:
        box.destroy()


def test_python_contexts_need_nothing_of_the_image(itx: Kennel, image: str) -> None:
    box = itx.sandboxes.get(f"/sandboxes/tiny-{uuid.uuid4().hex[:8]}").create(image="tiny", instance_type="standard-1")
    try:
        assert box.info().image_digest == image
        context = box.create_code_context()
        done = context.run("import sys, sqlite3, ssl\nprint(sys.executable)\n{'at': __import__('os').getcwd()}")
        assert done.error is None
        assert done.stdout == "/.kennel/bin/python3\n"
        assert done.results[0].json == {"at": "/workspace"}
        assert context.run("import os; os.system('echo from busybox')").stdout == "from busybox\n"
        with pytest.raises(Unsupported) as refused:
            box.create_code_context("typescript")
        assert refused.value.code == "JAVASCRIPT_NOT_AVAILABLE"
        assert refused.value.hint is not None
    finally:
        box.destroy()
