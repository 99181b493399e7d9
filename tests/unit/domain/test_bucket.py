"""What may be mounted, and where: everything else is refused before anything is done."""

from __future__ import annotations

from typing import Any

import pytest

from kennel import KennelError
from kennel.domain.bucket import OPTIONS, Bucket, Credentials, checked, checked_credentials, checked_path
from kennel.sdk.bucket_credentials import found

GIVEN: dict[str, Any] = {"bucket": "my-bucket", "mount_path": "/workspace/data", "endpoint": "https://s3.example.com"}


def bucket(**words: Any) -> Bucket:
    return checked(Bucket(**{**GIVEN, **words}))


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ({"mount_path": "/workspace/a/b c/é/"}, "mount_path", "/workspace/a/b c/é"),
        ({"prefix": "/a/b/"}, "prefix", "a/b"),
        ({"prefix": "a:b,c"}, "prefix", "a:b,c"),
        ({"prefix": "/"}, "prefix", None),
        ({"endpoint": "http://10.0.0.7:9000/"}, "endpoint", "http://10.0.0.7:9000"),
        ({"endpoint": "https://[2001:db8::1]:9000"}, "endpoint", "https://[2001:db8::1]:9000"),
        ({"endpoint": "https://ACCOUNT.eu.r2.cloudflarestorage.com"}, "endpoint", "https://account.eu.r2.cloudflarestorage.com"),
        ({"bucket": "a"}, "bucket", "a"),
        ({"bucket": "1.2-3"}, "bucket", "1.2-3"),
        ({"options": ("region=eu-west-1", "uid=1000")}, "options", ("region=eu-west-1", "uid=1000")),
    ],
)  # fmt: skip
def test_what_is_taken(words: dict[str, Any], field: str, value: object) -> None:
    assert getattr(bucket(**words), field) == value


@pytest.mark.parametrize(
    "words",
    [
        *({"bucket": name} for name in ("", "A", "a_b", "-a", "a.", "a" * 64, "b:/etc", "a b", "a,b=c", "-o", "b\n")),
        *({"mount_path": path} for path in (
            "", "/", "/workspace", "/workspace/", "/workspace/.", "/workspace/../etc", "/workspace/a/../..", "/etc/a",
            "workspace/a", "/workspaces/a", "/workspace//a", "/workspace/a\0", "/workspace/\x1b[2J",
            "/workspace/\ud800", "/workspace/" + "a" * 256,
        )),
        *({"endpoint": text} for text in (
            "", "s3.example.com", "file:///etc", "https://", "https://a b", "https://u:p@h", "https://h/p", "https://h?x",
            "https://h#x", "https://h:99999", "https://h:0", "https://h,uid=0", "ftp://h", "https://-h", "https://h\n",
        )),
        *({"prefix": text} for text in ("..", "a/../b", "a//b", "./a", "a\0", "a\nb", "a" * 513)),
        *({"options": (text,)} for text in (
            "", "use_cache=/x", "passwd_file=/x", "url=http://x", "tmpdir=/x", "no_check_certificate", "iam_role=auto",
            "ssl_verify_hostname=0", "dbglevel=info", "logfile=/x", "uid=-1", "uid=65536", "uid=1,a", "retries=999",
            "umask", "umask=8", "region=a,b", "nomixupload=1", "uid", "ahbe_conf=/x", "curldbg", "retries=١",
        )),
        {"options": ("uid=1",) * 17},
    ],
)  # fmt: skip
def test_what_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(KennelError) as refused:
        bucket(**words)
    assert refused.value.code == "INVALID_MOUNT_CONFIG"


def test_a_place_meets_what_is_in_it_and_above_it() -> None:
    one = bucket(mount_path="/workspace/a/b")
    met = [path for path in ("/workspace/a/b", "/workspace/a", "/workspace/a/b/c") if one.meets(path)]
    assert len(met) == 3
    assert not any(one.meets(path) for path in ("/workspace/a/bc", "/workspace/c", "/workspace/a/c"))


def test_settings_are_by_the_store_and_the_callers_win() -> None:
    assert "use_path_request_style" in bucket().settings()
    for host in ("s3.eu-west-1.amazonaws.com", "storage.googleapis.com", "a.r2.cloudflarestorage.com"):
        assert "use_path_request_style" not in bucket(endpoint=f"https://{host}").settings()
    assert "use_path_request_style" in bucket(endpoint="https://evilamazonaws.com").settings()
    assert "nomixupload" in bucket(endpoint="https://a.eu.r2.cloudflarestorage.com").settings()
    settings = bucket(options=("retries=5", "region=eu-west-1")).settings()
    assert settings[-2:] == ["retries=5", "endpoint=eu-west-1"]
    assert "retries=1" not in settings
    assert not {"url", "passwd_file", "use_cache", "tmpdir", "dbglevel"} & set(OPTIONS)


def test_credentials_are_needed_well_formed_and_never_shown() -> None:
    good = Credentials("AKID", "secret/+=", "token")
    assert checked_credentials(good, ()) == good
    assert checked_credentials(None, ("public_bucket=1",)) is None
    assert "AKID" not in repr(good)
    assert good.hidden("AKID said secret/+= and token") == "… said … and …"
    with pytest.raises(KennelError) as missing:
        checked_credentials(None, ())
    assert missing.value.code == "MISSING_CREDENTIALS"
    for bad in (Credentials("", "s"), Credentials("a", "b c"), Credentials("a", "b\0"), Credentials("a", "b", "c\nd")):
        with pytest.raises(KennelError) as refused:
            checked_credentials(bad, ())
        assert refused.value.code == "INVALID_MOUNT_CONFIG"


def test_credentials_are_found_in_one_place() -> None:
    aws = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"}
    other = {"R2_ACCESS_KEY_ID": "d", "R2_SECRET_ACCESS_KEY": "e"}
    assert found({"access_key_id": "x", "secretAccessKey": "y"}, aws) == {"accessKeyId": "x", "secretAccessKey": "y"}
    assert found(None, aws | other) == {"accessKeyId": "a", "secretAccessKey": "b", "sessionToken": "c"}
    assert found(None, {"AWS_ACCESS_KEY_ID": "a"} | other) == {"accessKeyId": "d", "secretAccessKey": "e"}
    for given, environment in ((None, {"AWS_ACCESS_KEY_ID": "a", "R2_SECRET_ACCESS_KEY": "e"}), ({"key": "a"}, aws)):
        with pytest.raises(KennelError):
            found(given, environment)


def test_a_path_without_its_last_slash() -> None:
    assert checked_path("/workspace/a//") == "/workspace/a"
