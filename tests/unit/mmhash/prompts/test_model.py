"""A model is read from its directory, and plans are those of an engine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import mmhash
from mmhash.engines import sglang, vllm
from mmhash.errors import InputError, InputTypeError, InputValueError
from mmhash.prompts import Media, MediaSize, Model, UnknownMediaError, UnknownModelError
from tests.support import prompt_models
from tests.support.images import data_url, encode, frames_url

ENGINE = "vllm@0.32.0"


def _png(width: int = 280, height: int = 140) -> bytes:
    return encode(Image.new("RGB", (width, height), (1, 2, 3)))


def _chat(*urls: str, text: str = "what is it?") -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    parts.append({"type": "text", "text": text})
    return {"model": "m", "messages": [{"role": "user", "content": parts}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prompt_models.write_qwen2_vl(tmp_path_factory.mktemp("qwen2_vl"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return Model.load(folder)


def test_blocks_are_those_of_the_ids_and_spans(model: Model) -> None:
    data = _png()
    plan = model.plan(_chat(data_url(data)), ENGINE, block_size=8, seed="0")
    (item,) = plan.items
    assert item.key == mmhash.key(data)
    assert (item.grid, item.end - item.start) == ((1, 10, 20), 50)
    span = vllm.Span(vllm.uuid(item.key), item.start, item.end - item.start)
    keys = vllm.block_keys(plan.token_ids, 8, version="0.32.0", items=[span], seed="0")
    assert plan.blocks == [key.hex() for key in keys]
    assert plan.event_ids == [vllm.event_id(key) for key in keys]
    assert plan.request["messages"][0]["content"][0]["uuid"] == vllm.uuid(item.key)


def test_a_request_as_bytes_has_the_same_plan(model: Model) -> None:
    chat = _chat(data_url(_png()), data_url(_png(30, 30)))
    assert model.plan(json.dumps(chat).encode(), ENGINE) == model.plan(chat, ENGINE)


def test_the_request_is_not_changed(model: Model) -> None:
    chat = _chat(data_url(_png()))
    before = json.dumps(chat)
    model.plan(chat, ENGINE)
    assert json.dumps(chat) == before


@pytest.mark.parametrize(
    "members", [{}, {"mm_processor_kwargs": {"max_pixels": 50176}}, {"cache_salt": "s"}]
)
def test_a_request_whose_images_vllm_names_itself_is_not_changed(
    model: Model, members: dict[str, Any]
) -> None:
    data = _png()
    request = json.dumps(_chat(data_url(data)) | members, indent=1).encode()
    plan = model.plan(request, ENGINE, hashes="engine", model_id="/m", block_size=8)
    assert plan.annotated.write() == request
    expected = vllm.image_identifier(
        data,
        is_rgb=True,
        model_id="/m",
        processor_kwargs=members.get("mm_processor_kwargs"),
        version="0.32.0",
    )
    assert plan.items[0].engine_name == expected
    assert [span.whole_key().hex() for span in plan.spans] == [expected]


@pytest.mark.parametrize(
    ("engine", "members", "options"),
    [
        ("vllm@0.26.0", {}, {"model_id": "/m", "seed": "0"}),  # named by its pixels
        (ENGINE, {"media_io_kwargs": {"image": {"image_mode": "L"}}}, {"model_id": "/m"}),
        (ENGINE, {}, {}),
        (ENGINE, {}, {"model_id": "/m", "tenant": bytes(32)}),
    ],
)
def test_an_image_whose_own_name_is_not_known_gets_a_key(
    model: Model, engine: str, members: dict[str, Any], options: dict[str, Any]
) -> None:
    request = _chat(data_url(_png())) | members
    plan = model.plan(request, engine, hashes="engine", **options)
    assert plan.request["messages"][0]["content"][0]["uuid"] == vllm.uuid(plan.items[0].key)
    assert plan.blocks == model.plan(request, engine, **options).blocks


def test_media_behind_urls_come_from_the_caller(model: Model) -> None:
    data = _png()
    url = "https://example.com/a.png"
    known = {url: Media(MediaSize(width=280, height=140), mmhash.key(data))}
    plan = model.plan(_chat(url), ENGINE, media=known)
    assert plan.event_ids == model.plan(_chat(data_url(data)), ENGINE).event_ids
    with pytest.raises(UnknownMediaError):
        model.plan(_chat("https://example.com/b.png"), ENGINE, media=known)


@pytest.mark.parametrize(
    ("engine", "options"),
    [("sglang@0.5.23", {}), (ENGINE, {"tenant": bytes(32)})],
)
def test_vllm_s_name_of_an_image_is_only_for_vllm_without_tenants(
    model: Model, engine: str, options: dict[str, Any]
) -> None:
    """SGLang names no image so, and a tenant's images must not share vLLM's name."""
    url = "https://example.com/a.png"
    media = Media(MediaSize(width=280, height=140), mmhash.key(b"a"))
    known = {url: media._replace(engine_name="ab" * 32)}
    plan = model.plan(_chat(url), engine, media=known, hashes="engine", **options)
    keyed = model.plan(_chat(url), engine, media={url: media}, **options)
    assert plan.spans == keyed.spans
    assert plan.request == keyed.request


def _film(frames: int, **options: Any) -> dict[str, Any]:
    url = frames_url(_png(280, 140 + 7 * (number == 0)) for number in range(frames))
    part = {"type": "video_url", "video_url": {"url": url}}
    chat = {"messages": [{"role": "user", "content": [part]}]}
    return chat | ({"media_io_kwargs": {"video": options}} if options else {})


@pytest.mark.parametrize(
    ("sent", "options", "taken", "fps"),
    [
        (1, {}, 1, 1.0),
        (33, {}, 32, 1.0),
        (33, {"num_frames": -1, "fps": 2}, 33, 2.0),
        (5, {"num_frames": 4}, 4, 1.0),
    ],
)
def test_a_video_of_frames_is_planned(
    model: Model, sent: int, options: dict[str, Any], taken: int, fps: float
) -> None:
    plan = model.plan(_film(sent, **options), ENGINE, model_id="/m")
    (item,) = plan.items
    assert item.size == MediaSize(280, 147, taken, fps, times=tuple(n / fps for n in range(taken)))
    assert item.key == mmhash.key([_png(280, 147), *[_png()] * (sent - 1)])
    uuid = vllm.uuid(item.key)
    assert plan.request["messages"][0]["content"][0]["uuid"] == uuid
    assert len(plan.event_ids) == len(plan.token_ids) // 16


@pytest.mark.parametrize(
    "options", [{"fps": 0}, {"num_frames": 0}, {"num_frames": "4"}, {"do_sample_frames": True}]
)
def test_a_video_of_frames_with_other_options_has_no_plan(
    model: Model, options: dict[str, Any]
) -> None:
    with pytest.raises(InputValueError):
        model.plan(_film(2, **options), ENGINE, model_id="/m")


def test_tenants_have_their_own_blocks(model: Model) -> None:
    plans = [
        model.plan(_chat(data_url(_png())), ENGINE, tenant=tenant).blocks
        for tenant in (None, bytes(32), bytes(31) + b"1")
    ]
    assert len({blocks[-1] for blocks in plans}) == 3


def test_sglang_pads_the_image(model: Model) -> None:
    data = _png()
    text = "<|vision_start|><|image_pad|><|vision_end|>what is it?"
    plan = model.plan({"text": text, "image_data": data_url(data)}, "sglang@0.5.23", block_size=4)
    (item,) = plan.items
    padded = sglang.pad_input_ids(plan.token_ids, [(item.start, item.end, item.key)])
    assert plan.blocks == sglang.page_keys(padded[: len(padded) // 4 * 4], 4)
    assert plan.request["mm_hashes"] == [sglang.mm_hash(item.key)]


def test_blocks_of_a_chat_for_sglang_end_before_its_image(model: Model) -> None:
    plan = model.plan(_chat(data_url(_png())), "sglang@0.5.23", block_size=1)
    assert len(plan.blocks) == plan.items[0].start


def test_qwen3_vl_gets_no_hashes_from_sglang_0_5_20_on(tmp_path: Path) -> None:
    """With hashes the engine pads the prompt by one number and looks for another, and exits."""
    model = Model.load(prompt_models.write("qwen3_vl", tmp_path))
    text = "<|vision_start|><|image_pad|><|vision_end|>what is it?"
    request = {"text": text, "image_data": [data_url(_png())], "mm_hashes": ["1"]}
    plan = model.plan(request, "sglang@0.5.23", block_size=1)
    assert "mm_hashes" not in plan.request
    assert len(plan.blocks) == plan.items[0].start
    older = model.plan(request, "sglang@0.5.19", block_size=1)
    assert older.request["mm_hashes"] == [sglang.mm_hash(plan.items[0].key)]
    assert len(older.blocks) == len(older.token_ids)


@pytest.mark.parametrize("release", ["0.31.0", "0.32.0"])
def test_qwen3_vl_names_videos_with_their_own_options(tmp_path: Path, release: str) -> None:
    """Without them, two videos that are sampled otherwise had the name of no block of vLLM's."""
    model = Model.load(prompt_models.write("qwen3_vl", tmp_path))
    films = {
        f"https://example.com/{name}.mp4": Media(
            MediaSize(64, 64, frames=4, fps=1.0), mmhash.key(name.encode())
        )
        for name in "ab"
    }
    chat = _chat(data_url(_png()))
    chat["messages"][0]["content"] += [
        {"type": "video_url", "video_url": {"url": url}} for url in films
    ]
    chat["mm_processor_kwargs"] = {"fps": [1.0, 2.0]}
    plan = model.plan(chat, f"vllm@{release}", media=films, model_id="m", block_size=4)
    spans = []
    for modality in ("image", "video"):
        items = [item for item in plan.items if item.modality == modality]
        identifiers = vllm.identifiers(
            modality,
            [b""] * len(items),
            model_id="m",
            uuids=[vllm.uuid(item.key) for item in items],
            processor_kwargs=chat["mm_processor_kwargs"],
            per_video_options=True,
            version=release,
        )
        spans += [
            vllm.Span(identifier, item.start, item.end - item.start)
            for identifier, item in zip(identifiers, items, strict=True)
        ]
    keys = vllm.block_keys(plan.token_ids, 4, version=release, items=spans)
    assert len(spans) == 3
    assert plan.blocks == [key.hex() for key in keys]
    chat["mm_processor_kwargs"] = {"fps": [1.0]}
    if release == "0.32.0":
        with pytest.raises(InputValueError, match="fps needs an entry per video: 2, not 1"):
            model.plan(chat, f"vllm@{release}", media=films, model_id="m")


@pytest.mark.parametrize(
    ("release", "media"),
    [
        ("0.5.23", {"video_data": ["video.mp4"]}),
        ("0.5.23", {"audio_data": "data:audio/wav;base64,AAAA"}),
        ("0.5.23", {"image_data": data_url(_png()), "video_data": ["video.mp4"]}),
        ("0.5.12", {"image_data": data_url(_png())}),  # it takes no hashes
    ],
)
def test_media_of_generate_that_no_plan_reads_are_refused(
    model: Model, release: str, media: dict[str, Any]
) -> None:
    """A plan without them would have another prompt than the engine's."""
    text = "<|vision_start|><|image_pad|><|vision_end|>what is it?"
    with pytest.raises(InputValueError, match="no plan for a request with"):
        model.plan({"text": text, **media}, f"sglang@{release}")


@pytest.mark.parametrize(
    "request_",
    [
        b"[1]",
        b"{",
        b'{"messages": 1}',
        {"messages": []},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "user", "content": "x"}], "chat_template": "x"},
        {"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]}]},
        {"prompt": ["a", ["b"]]},
        {"prompt": [True]},
        {},
        _chat("data:image/png;base64,AAA"),
        _chat("data:image/png;base64,AAAA"),
        _chat("data:,", "nothing"),
        _chat(text="\ud800"),
        _chat(data_url(_png(1, 800))),
    ],
)  # fmt: skip
def test_a_wrong_request_is_an_error(model: Model, request_: Any) -> None:
    with pytest.raises(InputValueError):
        model.plan(request_, ENGINE)


@pytest.mark.parametrize("engine", [ENGINE, "sglang@0.5.23"])
@pytest.mark.parametrize("kind", [["text"], {}])
def test_a_type_that_is_no_text_is_an_error(model: Model, engine: str, kind: Any) -> None:
    for part in ({"text": "a"}, {"image_url": {"url": data_url(_png())}}):
        message = {"role": "user", "content": [{"type": kind} | part]}
        with pytest.raises(InputValueError, match="type of a content part"):
            model.plan({"messages": [message]}, engine)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"block_size": 0}, "block_size must be at least 1, not 0"),
        ({"of": "pixel"}, "of must be bytes or pixels, not 'pixel'"),
    ],
)
def test_a_wrong_option_is_an_error(model: Model, options: dict[str, Any], reason: str) -> None:
    """Each was taken for another value, and its plan named blocks that no engine has."""
    with pytest.raises(InputValueError, match=f"^{reason}$"):
        model.plan(_chat(data_url(_png())), ENGINE, **options)


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        (ENGINE, {"block_algorithm": "md5"}),
        (ENGINE, {"lookahead": -1}),
        ("sglang@0.5.23", {"seed": "0"}),
    ],
)
def test_block_options_are_checked_for_a_prompt_without_a_block(
    model: Model, engine: str, options: Any
) -> None:
    for block_size in (1, 4096):
        with pytest.raises(InputError, match=min(options)):
            model.plan(_chat(), engine, block_size=block_size, **options)


def test_a_tenant_of_a_text_is_checked(model: Model) -> None:
    """Only keys of media once checked the tenant, so every wrong value had a cache of its own."""
    with pytest.raises(InputValueError, match=r"^tenant must be 32 secret bytes, not 1$"):
        model.plan({"prompt": "hi"}, ENGINE, tenant=b"x")


KEY = mmhash.key(b"a")


@pytest.mark.parametrize(
    ("media", "error", "reason"),
    [
        ((64, 64), InputTypeError, "media must hold Media, not tuple"),
        (Media(MediaSize("64", 64), KEY), InputTypeError, "width must be an int, not str"),
        (Media((64, 64), KEY), InputTypeError, "a size must be a MediaSize, not tuple"),
        (Media(MediaSize(), KEY), InputValueError, "width must be at least 1, not 0"),
        (
            Media(MediaSize(64, 64), KEY, 9),
            InputValueError,
            "exif_orientation must be at most 8, not 9",
        ),
    ],
)
def test_an_impossible_size_of_media_is_an_error(
    model: Model, media: Any, error: type[Exception], reason: str
) -> None:
    """A plan of 64.5 pixels named blocks that no engine has."""
    with pytest.raises(error, match=f"^{reason}$"):
        model.plan(_chat("a"), ENGINE, media={"a": media})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", None),
        ("config.json", "{"),
        ("config.json", '{"model_type": "unheard_of"}'),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", None),
        ("preprocessor_config.json", '{"patch_size": "14"}'),
        ("chat_template.json", "5"),
    ],
)
def test_a_wrong_file_is_named(folder: Path, tmp_path: Path, name: str, text: str | None) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    with pytest.raises(UnknownModelError):
        Model.load(tmp_path)


def test_neither_torch_nor_transformers_is_imported(folder: Path) -> None:
    code = (
        "import sys; from mmhash.prompts import Model; "
        f"Model.load({str(folder)!r}).plan({{'prompt': 'hi'}}, 'vllm@0.32.0'); "
        "assert not {'torch', 'transformers', 'PIL'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
