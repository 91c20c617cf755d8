"""Videos and audio clips that lie about themselves: no time, memory, files or other frames by them.

The service reads containers only in decoder processes; the library refuses by its own errors.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mmhash
from mmhash.errors import InputError
from tests.support.clips import AUDIOS, VIDEOS, make_audio, make_video
from tests.support.responses import refusal_of

HUGE = 0xFFFF_FFF0
REFUSALS = {"damaged-media", "costly-media", "media-too-large", "invalid-recipe"}


def patched(name: bytes, offset: int, *values: int) -> bytes:
    """Return an MP4 with other 32-bit numbers in the box of that name."""
    file = bytearray(make_video("h264.mp4"))
    at = file.index(name) + 4 + offset
    struct.pack_into(f">{len(values)}I", file, at, *values)
    return bytes(file)


def box(kind: bytes, content: bytes = b"", size: int | None = None) -> bytes:
    length = 8 + len(content) if size is None else size
    return struct.pack(">I4s", length, kind) + content


def nested(depth: int) -> bytes:
    content = b""
    for _ in range(depth):
        content = box(b"moov", content)
    return box(b"ftyp", b"isom\0\0\0\0isom") + content


def cyclic_seek_head() -> bytes:
    """A Matroska file whose SeekHead names itself."""
    seek = bytes.fromhex("4dbb 8e 53ab84 114d9b74 53ac84 00000000".replace(" ", ""))
    head = bytes.fromhex("114d9b74") + bytes([0x80 | len(seek)]) + seek
    ebml = bytes.fromhex("1a45dfa3 a3 4286 81 01 42f7 81 01 42f2 81 04 42f3 81 08".replace(" ", ""))
    ebml += bytes.fromhex("4282 88") + b"matroska" + bytes.fromhex("4287 81 04 4285 81 02")
    return ebml + bytes.fromhex("18538067 01ffffffffffffff".replace(" ", "")) + head * 50


def bombs() -> dict[str, Callable[[], bytes]]:
    whole = make_video("h264.mp4")
    return {
        "empty": lambda: b"",
        "text": lambda: b"no media",
        "no moov": lambda: whole[: whole.index(b"moov") - 4],
        "half of the index": lambda: whole[: (whole.index(b"moov") + len(whole)) // 2],
        "time base zero": lambda: patched(b"mdhd", 12, 0),
        "billions of frames of one size": lambda: patched(b"stsz", 4, 1, HUGE),
        "billions of sizes": lambda: patched(b"stsz", 8, HUGE),
        "billions of chunks": lambda: patched(b"stsc", 4, HUGE),
        "billions of time entries": lambda: patched(b"stts", 4, HUGE),
        "a frame lasts for ever": lambda: patched(b"stts", 8, HUGE, HUGE),
        "offsets behind the end": lambda: patched(b"stco", 8, HUGE),
        "boxes of length zero": lambda: (
            box(b"ftyp", b"isom\0\0\0\0isom") + box(b"moov", size=8) * 9
        ),
        "boxes within boxes": lambda: nested(20_000),
        "a box longer than the file": lambda: box(b"ftyp", b"isom") + box(b"moov", size=1 << 31),
        "a cyclic SeekHead": cyclic_seek_head,
        "an unknown codec": lambda: whole.replace(b"avc1", b"zzzz"),
        "no codec": lambda: whole.replace(b"avc1", bytes(4)),
        "an unknown codec of Matroska": lambda: make_video("vp9.webm").replace(b"V_VP9", b"V_VPX"),
    }


BOMBS = bombs()
PLAYLISTS = {
    "hls": b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
    "concat": b"ffconcat version 1.0\nfile '{}'\n",
    "dash": b'<?xml version="1.0"?><MPD><Period><BaseURL>file:{}</BaseURL></Period></MPD>',
    "sdp": b"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n",
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("by", ["source", "frames"])
def test_the_service_refuses_it_or_hashes_the_frames_there_are(
    server: Any, name: str, by: str
) -> None:
    before = server.memory()
    answer = server.hash(BOMBS[name](), "video/mp4", of="frames", by=by, count=4)
    if answer.status_code == 200:
        (item,) = answer.json()["items"]
        assert item["shape"][0] == 4
    else:
        assert refusal_of(answer) in REFUSALS
    assert server.memory() - before < 64 << 20


@pytest.mark.parametrize("name", PLAYLISTS)
def test_a_playlist_opens_nothing(server: Any, tmp_path: Path, name: str) -> None:
    film = tmp_path / "secret.mp4"
    film.write_bytes(make_video("h264.mp4"))
    body = PLAYLISTS[name].replace(b"{}", str(film).encode())
    assert refusal_of(server.hash(body, "video/mp4", of="frames")) == "damaged-media"
    (tmp_path / "list").write_bytes(body)
    with pytest.raises(InputError):
        mmhash.video(tmp_path / "list")


@pytest.mark.parametrize("name", [*VIDEOS, *AUDIOS])
def test_every_truncation_is_refused_or_has_fewer_frames(server: Any, name: str) -> None:
    kind = "video" if name in VIDEOS else "audio"
    whole = make_video(name) if kind == "video" else make_audio(name)
    full = server.hash(whole, f"{kind}/x", of="frames", by="frames").json()["items"][0]
    for part in (0.1, 0.5, 0.9):  # the last bytes of an MP3 are padding
        cut = whole[: int(part * len(whole))]
        answer = server.hash(cut, f"{kind}/x", of="frames", by="frames")
        if answer.status_code == 200:
            assert answer.json()["items"][0]["key"] != full["key"]
        else:
            assert refusal_of(answer) in REFUSALS


def test_an_unknown_codec_of_audio_is_refused(server: Any) -> None:
    clip = bytearray(make_audio("pcm.wav"))
    clip[20:22] = b"\xee\xee"  # the format of its samples
    assert refusal_of(server.hash(bytes(clip), "audio/wav", of="frames")) == "damaged-media"
    with pytest.raises(InputError):
        mmhash.audio(bytes(clip))


def test_frames_beyond_the_limit_on_pixels_are_refused(server: Any) -> None:
    film = make_video("h264.mp4", 4, size=(640, 480))
    query = {"of": "frames", "by": "frames"}
    assert server.hash(film, "video/mp4", **query, count=1).status_code == 200
    assert refusal_of(server.hash(film, "video/mp4", **query)) == "media-too-large"
    enlarged = server.hash(film, "video/mp4", **query, count=1, size="16000x16000")
    assert refusal_of(enlarged) == "media-too-large"
