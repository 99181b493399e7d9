"""Which advisories concern which version: real `--version` texts, Debian revisions, series with and without a fix."""

from __future__ import annotations

import pytest

from kennel.domain.advisories import advisories, parse_version
from kennel.domain.advisory_table import KNOWN

DEBIAN_12 = "runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\ngo: go1.19.8\nlibseccomp: 2.5.4\n"
AFTER_1_1_14 = {"CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881", "CVE-2026-41579", "CVE-2026-119101"}


def ids(runtime: str, text: str, revision: str | None = None) -> set[str]:
    return {advisory.id for advisory in advisories(runtime, text, revision)}


@pytest.mark.parametrize(
    ("text", "revision", "expected"),
    [
        (DEBIAN_12, None, AFTER_1_1_14 | {"CVE-2024-45310"}),
        (DEBIAN_12, "1.1.5+ds1-1+deb12u1", AFTER_1_1_14 | {"CVE-2024-45310"}),
        (DEBIAN_12, "1.1.5+ds1-1+deb12u2", AFTER_1_1_14 | {"CVE-2024-45310"}),
        (DEBIAN_12, "1.1.5+ds1-1", AFTER_1_1_14 | {"CVE-2024-45310", "CVE-2024-21626"}),
        ("runc version 1.1.5", None, AFTER_1_1_14 | {"CVE-2024-45310", "CVE-2024-21626"}),
        ("runc version 1.1.14", None, AFTER_1_1_14),
        ("runc version 1.2.0-rc.2", None, AFTER_1_1_14 | {"CVE-2024-45310"}),
        ("runc version 1.2.0-rc.3", None, AFTER_1_1_14),
        ("runc version 1.2.8", None, {"CVE-2026-41579", "CVE-2026-119101"}),
        ("runc version 1.3.2", None, AFTER_1_1_14),
        ("runc version 1.3.7", None, set()),
        ("runc version 1.4.0-rc.2", None, AFTER_1_1_14),
        ("runc version 1.4.0", None, {"CVE-2026-41579", "CVE-2026-119101"}),
        ("runc version 1.4.4", None, set()),
        ("runc version 1.5.0", None, {"CVE-2026-119101"}),
        ("runc version 1.5.3", None, set()),
        ("runc version 2.0.0", None, set()),
    ],
)
def test_runc(text: str, revision: str | None, expected: set[str]) -> None:
    assert ids("runc", text, revision) == expected


def test_an_old_runc_has_them_all_but_what_came_later() -> None:
    assert ids("runc", "runc version 1.0.0-rc6") == {k.id for k in KNOWN if k.runtime == "runc"} - {"CVE-2023-27561"}
    assert "CVE-2023-27561" in ids("runc", "runc version 1.0.0-rc95")
    assert "CVE-2021-30465" not in ids("runc", "runc version 1.0.0~rc94+ds1", "1.0.0~rc94+ds1-2")
    assert "CVE-2021-30465" in ids("runc", "runc version 1.0.0~rc94+ds1", "1.0.0~rc94+ds1-1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "crun version 1.8.1\ncommit: f8a096be060b22ccd3d5f3ebe44108517fbf6c30",
            {"CVE-2025-24965", "CVE-2026-88264", "CVE-2026-88265", "CVE-2026-115520", "CVE-2026-115521"},
        ),
        (
            "crun version 1.20",
            {"CVE-2026-30892", "CVE-2026-88264", "CVE-2026-88265", "CVE-2026-115520", "CVE-2026-115521"},
        ),
        (
            "crun version 1.29.1",
            {"CVE-2026-84042", "CVE-2026-88264", "CVE-2026-88265", "CVE-2026-115520", "CVE-2026-115521"},
        ),
        ("crun version 1.30", {"CVE-2026-115520", "CVE-2026-115521"}),
        ("crun version 1.31", set()),
        ("crun version 0.10", {k.id for k in KNOWN if k.runtime == "crun"} - {"CVE-2026-30892", "CVE-2026-84042"}),
    ],
)
def test_crun(text: str, expected: set[str]) -> None:
    assert ids("crun", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runsc version 0.0~20221219.0\nspec: 1.0.2", {"CVE-2025-2713"}),
        ("runsc version release-20221219.0", {"CVE-2025-2713"}),
        ("runsc version release-20250319.0", set()),
        ("runsc version release-20261012.0", set()),
    ],
)
def test_runsc(text: str, expected: set[str]) -> None:
    assert ids("runsc", text) == expected


@pytest.mark.parametrize("text", ["", "runc version unknown", "garbage", "\0", "v", "1"])
def test_a_version_that_cannot_be_read_is_taken_for_affected_and_said_to_be_unknown(text: str) -> None:
    found = advisories("runc", text)
    assert {advisory.id for advisory in found} == {known.id for known in KNOWN if known.runtime == "runc"}
    assert not any(advisory.certain for advisory in found)


def test_another_runtime_has_none() -> None:
    assert advisories("youki", "youki version 0.3.0") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runc version 1.1.5+ds1", (1, 1, 5)),
        ("runc version 1.4.0-rc.3+dev", (1, 4, 0)),
        ("v1.2", (1, 2, 0)),
        ("crun version 1.8.1-1+deb12u1", (1, 8, 1)),
    ],
)
def test_versions_are_read(text: str, expected: tuple[int, ...]) -> None:
    version = parse_version("runc", text)
    assert version is not None
    assert version[:3] == expected


def test_candidates_come_before_their_release() -> None:
    words = ["1.0.0-rc6", "1.0.0-rc95", "1.0.0", "1.1.5", "1.2.0-rc.3", "1.2.0"]
    versions = [parse_version("runc", word) for word in words]
    assert None not in versions
    assert versions == sorted(versions, key=lambda version: version or ())


def test_every_row_is_complete() -> None:
    assert len({known.id for known in KNOWN}) == len(KNOWN)
    for known in KNOWN:
        assert known.id.startswith("CVE-")
        assert known.runtime in ("runc", "crun", "runsc")
        assert known.summary
        assert known.because
        assert all(parse_version(known.runtime, word) for word in known.fixed_in)
    for advisory in advisories("runc", DEBIAN_12):
        assert advisory.certain
        assert advisory.remedy
        assert advisory.mitigated in ("yes", "partly", "no")
    partly = next(a for a in advisories("runc", DEBIAN_12) if a.id == "CVE-2026-41579")
    assert "1.3.6 or 1.4.3" in partly.remedy
    assert not partly.fixed
    assert "can partly be used here, because" in partly.found


def test_a_line_says_when_the_version_is_unknown() -> None:
    assert all(advisory.found.startswith("the installed version is unknown") for advisory in advisories("runc", "?"))
    assert not any(advisory.found.startswith("the installed") for advisory in advisories("runc", DEBIAN_12))
