"""The settings: where they come from, and their bounds."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from mmhash_service.settings import Settings

TOML = """
port = 11
processes = 2
api_key_digests = ["{digest}"]

[tenants]
acme = "{secret}"
"""
DIGEST, SECRET = "ab" * 32, "cd" * 32


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mmhash.toml"
    path.write_text(TOML.format(digest=DIGEST, secret=SECRET))
    monkeypatch.setenv("MMHASH_CONFIG", str(path))
    return path


def test_a_file_gives_what_neither_argument_nor_environment_does(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMHASH_PORT", "22")
    settings = Settings()
    assert (settings.port, settings.processes) == (22, 2)
    assert settings.api_key_digests == (DIGEST,)
    assert settings.tenants["acme"].get_secret_value() == SECRET
    assert Settings(processes=3).processes == 3


def test_a_name_in_the_file_that_is_not_known_is_refused(file: Path) -> None:
    file.write_text("prot = 1")
    with pytest.raises(ValueError, match=r"prot: did you mean port\?"):
        Settings()


def test_a_file_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMHASH_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(ValueError, match="does not name a file"):
        Settings()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("MMHASH_PROT", "MMHASH_PORT"), ("MMHASH_MAX_BODY_BYTE", "MMHASH_MAX_BODY_BYTES")],
)
def test_a_variable_that_nobody_reads_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, nearest: str
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(ValueError, match=f"unknown name {name}: did you mean {nearest}\\?"):
        Settings()


PROTECTING = ("api_key_digests", "tag_secrets", "tenants")


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields.keys() - PROTECTING:
        monkeypatch.setenv(Settings.variable(name), "")
    assert Settings() == Settings.model_construct()


@pytest.mark.parametrize("name", PROTECTING)
def test_an_empty_variable_does_not_switch_protection_off(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"MMHASH_{name.upper()}", "")
    with pytest.raises(ValidationError, match=f"{name}: its variable is empty"):
        Settings()


def test_an_argument_replaces_an_empty_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMHASH_API_KEY_DIGESTS", "")
    assert Settings(api_key_digests=(DIGEST,)).api_key_digests == (DIGEST,)


def test_the_library_s_variables_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.other_variables | {"MMHASH_GATEWAY_X", "MMHASH_GUARD_X"}:
        monkeypatch.setenv(name, "1")
    Settings()


TIMES = ("grace_s", "timeout_s")
SIZES = ("max_body_bytes", "max_held_bytes")


@pytest.mark.parametrize(
    "wrong",
    [
        {"tenants": {"acme": "cd" * 31}},
        {"tenants": {"a b": SECRET}},
        {"api_key_digests": ["ab"]},
        {"processes": 0},
        {"grace_s": 0},
        {"max_held_bytes": 1},
        {"nothing": 1},
        {"url_networks": ["10.0.0.1/8"]},
        *({name: value} for name in TIMES for value in ("nan", "inf", "-inf", "-1", "1e400", 0)),
        *({name: value} for name in SIZES for value in (-1, "9" * 5000, "1e9", "")),
        *({"host": host} for host in ("", "a b", "a\0", "a\nb", "\ud800", "x" * 300)),
        {"host": "http://localhost"},
        {"host": "[::1]"},
    ],
)
def test_other_values_out_of_bounds_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(**wrong)  # type: ignore[arg-type]
    assert all(str(at["loc"][0]) in wrong for at in refused.value.errors() if at["loc"])


def test_no_secret_is_shown() -> None:
    settings = Settings(tenants={"acme": SECRET})
    assert SECRET not in f"{settings!r} {settings} {settings.model_dump_json()}"
    with pytest.raises(ValidationError) as refused:
        Settings(tenants={"acme": SECRET + "x"})
    assert SECRET not in str(refused.value)


def test_an_assignment_is_read_as_the_environment_would_have_it() -> None:
    assert Settings.parse_assignment("port=1") == ("port", "1")
    assert Settings.parse_assignment('tenants={"a":"b=c"}') == ("tenants", {"a": "b=c"})
    assert Settings(**dict([Settings.parse_assignment("port=7")])).port == 7
    with pytest.raises(ValueError, match=r"^unknown name prot: did you mean port\?$"):
        Settings.parse_assignment("prot=1")
    with pytest.raises(ValueError, match=r"^port has no value: --set expects NAME=VALUE$"):
        Settings.parse_assignment("port")


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen2-VL-7B-Instruct", "/models/qwen", "a@b:c+d", "x" * 255]
)
def test_a_model_may_have_the_name_that_an_engine_serves_it_by(name: str, tmp_path: Path) -> None:
    assert Settings(models={name: tmp_path}).models[name].path == tmp_path


@pytest.mark.parametrize("name", ["", "a b", "a\n", "ä", "x" * 256])
def test_other_names_of_models_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="models"):
        Settings(models={name: tmp_path})


FILES = {
    "MMHASH_TENANTS_FILE": f'{{"acme": "{SECRET}"}}\n',
    "MMHASH_TAG_SECRETS_FILE": f"{SECRET}\n{DIGEST}\n",
    "MMHASH_API_KEY_DIGESTS_FILE": f'["{DIGEST}"]',
    "MMHASH_MEMO_URL_FILE": "redis://:hunter2@cache\n",
}


def test_secrets_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, content in FILES.items():
        (tmp_path / variable).write_text(content)
        monkeypatch.setenv(variable, str(tmp_path / variable))
    settings = Settings()
    assert settings.tenants["acme"].get_secret_value() == SECRET
    assert [secret.get_secret_value() for secret in settings.tag_secrets] == [SECRET, DIGEST]
    assert settings.api_key_digests == (DIGEST,)
    assert settings.memo_url is not None
    assert settings.memo_url.get_secret_value() == "redis://:hunter2@cache"
    monkeypatch.setenv("MMHASH_TENANTS", "{}")
    with pytest.raises(ValueError, match="MMHASH_TENANTS_FILE and MMHASH_TENANTS are both set"):
        Settings()


@pytest.mark.parametrize("content", [b"{hunter2", b"\xff hunter2"])
def test_a_secret_file_that_is_wrong_is_not_shown(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    monkeypatch.setenv("MMHASH_TENANTS_FILE", str(path))
    with pytest.raises(ValueError, match="MMHASH_TENANTS_FILE") as refused:
        Settings()
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("content", ["", " \n", "[]"])
@pytest.mark.parametrize("name", ["API_KEY_DIGESTS", "TAG_SECRETS"])
def test_a_secret_file_that_is_empty_opens_no_service(
    name: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mounted file may not be filled yet."""
    (tmp_path / "secret").write_text(content)
    monkeypatch.setenv(f"MMHASH_{name}_FILE", str(tmp_path / "secret"))
    with pytest.raises(ValueError, match=f"the file of MMHASH_{name}_FILE is empty"):
        Settings()


def test_a_secret_file_must_be_a_regular_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "none", tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        monkeypatch.setenv("MMHASH_TENANTS_FILE", str(path))
        with pytest.raises(ValueError, match="MMHASH_TENANTS_FILE"):
            Settings()
