"""Instance types in force: memory, CPU, processes, disk, and the most instances of a type."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from installation import Installation, make_installation
from kennel import Kennel, KennelError

Make = Callable[..., Any]


@pytest.fixture
def make(itx: Kennel) -> Iterator[Make]:
    made = []

    def create(**options: Any) -> Any:
        box = itx.sandboxes.get(f"/sandboxes/lim-{uuid.uuid4().hex[:8]}").create(**options)
        made.append(box)
        return box

    yield create
    for box in made:
        box.destroy()


def test_running_out_of_memory_takes_the_command_and_is_said(make: Make) -> None:
    box = make(instance_type="lite")
    result = box.exec("head -c 400M /dev/zero | tail -c 400M >/dev/null", timeout=60)
    assert result.oom_killed
    assert result.exit_code == 137
    again = box.exec("echo alive")
    assert (again.stdout, again.oom_killed) == ("alive\n", False)
    assert not box.exec("sh -c 'kill -9 $$'").oom_killed


def test_cpu_is_what_the_type_says(make: Make) -> None:
    box = make(instance_type="lite")
    box.exec("true")
    spin = """
import time
begun, used = time.time(), time.process_time()
while time.time() - begun < 2: pass
print(time.process_time() - used)"""
    used = float(box.exec(argv=["/usr/bin/python3", "-c", spin], timeout=60).stdout)
    assert used < 2 * 0.0625 * 2.5, "1/16 of a CPU, with room for the burst of one period"


def test_a_fork_bomb_ends_at_the_limit_of_processes(make: Make) -> None:
    box = make(instance_type="lite")
    result = box.exec("for i in $(seq 2000); do sleep 30 & done; wait", timeout=15)
    assert result.timed_out or "Resource temporarily unavailable" in result.stderr
    assert box.exec("echo alive", timeout=20).stdout == "alive\n"


@pytest.mark.parametrize("place", ["/workspace", "/usr/local", "/tmp", "/var/tmp", "/root", "/etc"])
def test_every_writable_place_counts_against_the_disk(make: Make, place: str) -> None:
    box = make(instance_type="lite")
    script = f"""
cd {place}; mkdir fill; n=0
while fallocate -l 100M fill/$n 2>/dev/shm/said; do n=$((n + 1)); done
echo $n; cat /dev/shm/said; head -c 200M /dev/zero > fill/last || true; rm -r fill; echo left"""
    result = box.exec(script, timeout=100)
    count, *said, left = result.stdout.splitlines()
    assert 15 <= int(count) < 20
    assert "No space left on device" in " ".join(said)
    assert "No space left on device" in result.stderr
    assert left == "left"


@pytest.mark.full
def test_a_disk_filled_by_writing(make: Make) -> None:
    box = make(instance_type="standard-1")
    result = box.exec("head -c 10G /dev/zero > big; stat -c %s big; rm big; echo left", timeout=300)
    assert "No space left on device" in result.stderr
    assert 7.0e9 < int(result.stdout.split()[0]) < 8.0e9


def test_no_writable_mount_is_off_the_disk_but_shared_memory(make: Make) -> None:
    box = make()
    script = """
while read -r _ _ _ _ target options _; do
    case ",$options," in *,rw,*) ;; *) continue ;; esac
    [ -d "$target" ] || continue
    if touch "$target/.probe" 2>/dev/null; then echo "$target"; rm "$target/.probe"; fi
done < /proc/self/mountinfo"""
    assert sorted(box.exec(script).stdout.split()) == ["/", "/dev", "/dev/mqueue", "/dev/shm", "/usr", "/workspace"]
    assert "No space" in box.exec("head -c 1M /dev/zero > /dev/big").stderr


def test_the_most_instances_of_a_type() -> None:
    for limited in make_installation(warm_pool="0", max_instances='{"lite": 1}'):
        limited_types(limited)


def limited_types(installation: Installation) -> None:
    with installation.client() as itx:
        first = itx.sandboxes.get("/sandboxes/first").create(instance_type="lite")
        first.exec("true")
        with pytest.raises(KennelError) as caught:
            itx.sandboxes.get("/sandboxes/second").create(instance_type="lite")
        refused = caught.value
        assert (refused.code, refused.status, refused.admitted) == ("NO_CAPACITY", 503, "no")
        assert refused.details["maxInstances"] == 1
        assert itx.sandboxes.list() == [first.info()]
        first.sleep()
        second = itx.sandboxes.get("/sandboxes/second").create(instance_type="lite")
        assert second.exec("echo in").stdout == "in\n"
        with pytest.raises(KennelError) as caught:
            first.exec("true")
        assert caught.value.code == "NO_CAPACITY"
        second.destroy()
        assert first.exec("echo in").stdout == "in\n"
