"""A rewritten body keeps the spelling of its numbers and long texts."""

import json

import pytest

from mmhash_service.guard.caller_hashes import strip_unverified_hashes
from mmhash_service.problems.problem import Problem


def rewritten(body: bytes) -> bytes:
    written = strip_unverified_hashes(body, lambda _tags: ())
    assert written is not None
    return written


NUMBERS = [
    *("0", "-0.0", "0.0", "1.0", "1.10", "1e5", "1E5", "1e+5", "-1e-05", "1e400", "-1e400"),
    *("1e-400", "0.1000000000000000055511151231257827", "3.141592653589793238462643383279"),
    *(
        "9007199254740993",
        "18446744073709551616",
        "-9223372036854775809",
        "1" * 4000,
        "0e0",
        "-0e0",
    ),
]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_keeps_its_spelling(number: str) -> None:
    text = '{"a":%s,"b":[%s,{"c":%s}],"d":" -0, [-0] %s "}'.replace("%s", number)
    body = text[:-1] + ',"uuid":"x"}'
    assert rewritten(body.encode()).decode() == text
    spaced = '{ "a" :\t%s\n, "uuid" : "x", "b":[ %s ] }'.replace("%s", number)
    assert rewritten(spaced.encode()).decode() == '{"a":%s,"b":[%s]}'.replace("%s", number)


@pytest.mark.parametrize("length", [0, 1, 8, 70_000, 131_072, 400_000])
@pytest.mark.parametrize(
    "unit",
    ["A", "-0", "0", "x" * 32, "\\n", "\\u0041", "\\\\", "e-0 ", "\u00e9", "A" * 65_536 + " "],
)
def test_a_long_text_keeps_its_content(length: int, unit: str) -> None:
    for shift in range(9):
        text = "A" * shift + unit * (length // len(unit))
        body = b'{"a":"%b","uuid":"x","b":[1,"%b"]}' % (text.encode(), text.encode())
        read = json.loads(body)
        written = rewritten(body)
        del read["uuid"]
        assert json.loads(written) == read


@pytest.mark.parametrize("digits", [b"1" * 70_000, b"1" * 70_000 + b"e5", b"A" * 140_000])
def test_a_long_word_that_is_no_string_is_refused(digits: bytes) -> None:
    with pytest.raises(Problem, match="invalid-json"):
        rewritten(b'{"uuid":"x","a":' + digits + b"x}")


@pytest.mark.parametrize(
    "body",
    [
        b'{"tools":[{"properties":{"uuid":{"type":"string"}}}],"n":1.0}',
        b'{ "uuid" : null, "a" : "\\u00e9 \\"quoted\\" \\/", "n": 1e400 }\n',
        b'{"uuid":null,"a":"' + b"A" * 200_000 + b'","n":-0}',
        b'[{"hash":"of a password"},{"mm_hashes":[]}]',
    ],
)
def test_a_body_without_hashes_is_not_rewritten(body: bytes) -> None:
    assert strip_unverified_hashes(body, lambda _tags: ()) is None


@pytest.mark.parametrize(
    "name", [b'"uuid"', b'"u\\u0075id"', b'"multi_modal_uuids"', b'"mmhash_tags"']
)
def test_a_field_is_found_across_the_chunks_of_the_search(name: bytes) -> None:
    """A body that is no JSON is searched: it passes only if it has none of the names."""
    start, end = b'{"a":"', b'",' + name + b':"x"'
    for at in range((64 << 10) - len(end), 64 << 10):
        body = start + b"A" * (at - len(start))
        assert strip_unverified_hashes(body, lambda _tags: ()) is None
        with pytest.raises(Problem, match="invalid-json"):
            strip_unverified_hashes(body + end, lambda _tags: ())


def test_the_input_of_a_tool_s_call_stays_in_messages_only() -> None:
    """A conversation that an agent sends again has the arguments of its calls as objects."""
    call = {"type": "tool_use", "id": "1", "name": "f", "input": {"uuid": "x"}}
    content = [call, {"type": "text", "text": "a", "uuid": "x"}]
    body = json.dumps({"messages": [{"role": "assistant", "content": content}]}).encode()

    def kept(path: str | None) -> list[bool]:
        written = strip_unverified_hashes(body, lambda _tags: (), path=path)
        (message,) = json.loads(written or body)["messages"]
        first, second = message["content"]
        return ["uuid" in first["input"], "uuid" in second]

    assert kept("/v1/messages") == [True, False]
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages/", None):
        assert kept(path) == [False, False]
