"""Prompts of one check of an engine."""

from mmhash.verify.prompts import prompts


def test_another_text_for_the_same_media() -> None:
    prompt = next(one for one in prompts() if one.images)
    other = prompt.with_new_text()
    assert other.text != prompt.text
    assert (other.images, other.image_format, other.salt) == (
        prompt.images,
        prompt.image_format,
        prompt.salt,
    )
