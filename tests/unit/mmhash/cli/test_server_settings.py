"""Settings on the command line: `--set NAME=VALUE`, and the forms that errors show."""

import json

import pytest

from mmhash.cli.server_settings import FORMS, parse_assignment
from mmhash_service.settings import Settings


def test_an_assignment_is_read_as_the_environment_would_have_it() -> None:
    assert parse_assignment("port=1", Settings) == ("port", "1")
    assert parse_assignment('tenants={"a":"b=c"}', Settings) == ("tenants", {"a": "b=c"})
    assert Settings(**dict([parse_assignment("shm=true", Settings)])).shm
    with pytest.raises(ValueError, match=r"^unknown name prot: did you mean port\?$"):
        parse_assignment("prot=1", Settings)
    with pytest.raises(ValueError, match="unknown name"):
        parse_assignment("port", Settings)


def test_a_far_name_gets_no_guess() -> None:
    for name in ("log_level", "debug", "x"):
        with pytest.raises(ValueError, match=f"^unknown name {name}: docs/settings.md lists"):
            parse_assignment(f"{name}=1", Settings)


def test_forms_are_those_of_settings_that_are_json() -> None:
    are_json = {
        name
        for name, field in Settings.model_fields.items()
        if isinstance(field.default, (tuple, dict, frozenset))
    }
    assert FORMS.keys() == are_json
    assert all(type(json.loads(form)) in {list, dict} for form in FORMS.values())
