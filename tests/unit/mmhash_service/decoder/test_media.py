"""Media in a decoder process that lacks PyAV."""

import pytest

from mmhash_service.decoder.media import read_media
from mmhash_service.decoder.messages import MediaJob, Refused


@pytest.mark.parametrize("modality", ["video", "audio"])
def test_without_pyav_the_problem_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, modality: str
) -> None:
    monkeypatch.setattr("mmhash_service.decoder.media.av", None)
    answer = read_media(b"any", MediaJob("blake3", modality, 0, 1 << 20, 1.0, 1.0))
    assert isinstance(answer, Refused)
    assert answer.problem == "no-media-extra"
