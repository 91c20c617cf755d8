"""Processing options of requests are read by modality, and unknown ones refused."""

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts.families.processor_options import read_options


def test_options_of_a_kind_precede_those_of_all() -> None:
    options = {"max_pixels": 1, "images_kwargs": {"max_pixels": 2}, "fps": 2.0}
    assert read_options(options, "images_kwargs", ("max_pixels",)).get("max_pixels", int) == 2
    assert read_options(options, "videos_kwargs", ("max_pixels",)).get("max_pixels", int) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"merge_size": 4},
        # The processor adds these to the options of each kind.
        {"common_kwargs": {"max_pixels": 4}},
    ],
)
def test_an_unknown_option_is_refused_because_it_may_change_the_number(
    options: dict[str, object],
) -> None:
    with pytest.raises(InputValueError, match=next(iter(options))):
        read_options(options, "images_kwargs", ("max_pixels",))
