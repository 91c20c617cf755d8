"""The errors of settings: one line that names each wrong one, and shows no value."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import ValidationError
from pydantic_settings import SettingsError

from mmhash.errors import InputValueError
from mmhash_service.settings import form_hint, unknown_setting

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_FIELD = re.compile(r'"(\w+)"')


@contextmanager
def settings_errors() -> Iterator[None]:
    """Replace the errors of settings by one line that names them."""
    try:
        yield
    except ValidationError as error:
        # Without the values: a setting may be a secret.
        details = map(_detail, error.errors())
        raise InputValueError(f"settings: {'; '.join(details)}") from error
    except RecursionError as error:
        raise InputValueError("settings: a value is nested too deep") from error
    except SettingsError as error:  # of a variable that is not JSON
        found = _FIELD.search(str(error))
        reason = f"{found[1]}: not JSON{form_hint(found[1])}" if found else str(error)
        raise InputValueError(f"settings: {reason}") from error
    except ValueError as error:
        raise InputValueError(f"settings: {error}") from error


def _detail(error: "ErrorDetails") -> str:
    """Return one error of pydantic's, with the form of a setting that has one."""
    path = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:  # of the file
        return unknown_setting(path)
    reason = f"{error['msg'].removeprefix('Value error, ')}{form_hint(path)}"
    # An error of several settings has no path.
    return ": ".join(filter(None, (path, reason)))
