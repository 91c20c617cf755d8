"""The gateway's settings: where they come from, and their bounds."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.settings import Settings


@pytest.mark.parametrize(
    "wrong",
    [
        {"worker_list": ("http://a", "http://a")},
        {"worker_list": ("http://a", "http://A:80/")},
        {"worker_list": ("https://a:443/b", "https://a/b")},
        {"worker_list": ("nothing",)},
        {"worker_list": ("http://a",), "worker_dns": "http://b:1"},
        {"worker_file": "/nowhere"},
        {"policy": "best"},
        {"worker_api_key": ""},
        {"worker_api_key": "hunter2\n"},
        {"worker_api_key": " hunter2"},
        {"worker_api_key": "hunter2\r\nX-Mmhash-Tenant: acme"},
        {"worker_api_key": "hun\x00ter2"},
        {"worker_api_key": "hun\x7fter2"},
        {"picker_tls": "/nowhere"},
        {"unknown": 1},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        GatewaySettings(**wrong)


def test_the_api_key_of_the_workers_comes_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("hunter2\n")
    monkeypatch.setenv("MMHASH_GATEWAY_WORKER_API_KEY_FILE", str(tmp_path / "key"))
    assert GatewaySettings().authorization == [(b"authorization", b"Bearer hunter2")]
    Settings()
    monkeypatch.setenv("MMHASH_GATEWAY_WORKER_API_KEY", "another")
    with pytest.raises(ValueError, match="are both set"):
        GatewaySettings()


def test_the_error_of_an_api_key_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMHASH_GATEWAY_WORKER_API_KEY", "hunter2\n")
    with pytest.raises(
        ValidationError, match="worker_api_key must not have control characters"
    ) as caught:
        GatewaySettings()
    assert "hunter2" not in str(caught.value)


def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMHASH_GATEWAY_POLICE", "x")
    with pytest.raises(ValueError, match=r"POLICE: did you mean MMHASH_GATEWAY_POLICY\?"):
        GatewaySettings()
    monkeypatch.delenv("MMHASH_GATEWAY_POLICE")
    monkeypatch.setenv("MMHASH_GATEWAY_X", "x")
    with pytest.raises(ValueError, match=r"MMHASH_GATEWAY_X: docs/gateway\.md lists"):
        GatewaySettings()
