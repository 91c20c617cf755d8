"""The workers of content whose blocks have no names."""

from mmhash_service.gateway.placements import Placements


def test_the_last_worker_of_an_image_is_remembered() -> None:
    placements = Placements()
    assert placements.find(b"image") is None
    placements.note(b"image", "a")
    placements.note(b"image", "b")
    assert placements.find(b"image") == "b"


def test_the_images_that_were_sent_first_are_forgotten() -> None:
    placements = Placements(max_keys=2)
    for key in (b"1", b"2", b"1", b"3"):
        placements.note(key, "a")
    assert len(placements) == 2
    assert placements.find(b"1") == placements.find(b"3") == "a"
    assert placements.find(b"2") is None
