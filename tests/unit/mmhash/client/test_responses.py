from dataclasses import replace

import mmhash
from mmhash.client import Item

KEY = mmhash.key(b"abc")
ITEM = Item(
    "a <b>",
    "tensor",
    "float16",
    (2, 3),
    12_345,
    KEY,
    KEY,
    {"vllm": {"uuid": KEY.hex()}},
    None,
    None,
)


def test_notebooks_show_an_item_as_a_table() -> None:
    html = ITEM._repr_html_()
    assert html.startswith("<table>")
    assert "a &lt;b&gt;" in html
    assert "<b>" not in html
    assert "tensor float16 [2, 3]" in html
    assert "12,345 bytes" in html
    assert f"<th>key</th><td><code>{KEY:x}</code>" in html
    assert "memo" not in html


def test_content_of_the_service_is_escaped() -> None:
    html = replace(ITEM, engines={"<script>": {"uuid": "<script>"}})._repr_html_()
    assert "<script>" not in html
