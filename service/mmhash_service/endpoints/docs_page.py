"""Renders the OpenAPI document as the page `/docs`, without scripts."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mmhash: the HTTP API</title>
<link rel="icon" href="page/icon.svg">
<link rel="stylesheet" href="page/page.css">
</head>
<body>
<main>
<h1>mmhash {version}: the HTTP API</h1>
<p>For programs: <a href="openapi.json">openapi.json</a>.</p>
"""


def render(document: dict[str, Any]) -> str:
    """Return an OpenAPI document as HTML."""
    calls = [
        (method.upper(), path, call)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
    ]
    links = (
        f'<li><a href="#{_id(method, path)}">{method} {escape(path)}</a></li>'
        for method, path, _ in calls
    )
    parts = [_HEAD.replace("{version}", escape(document["info"]["version"]))]
    parts += ["<nav><ul>", *links, "</ul></nav>"]
    for method, path, call in calls:
        parts += _call(method, path, call)
    parts.append("<h2>Schemas</h2>")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append(f'<h3 id="schema-{escape(name)}">{escape(name)}</h3>{_json(schema)}')
    return "\n".join([*parts, "</main>", "</body>", "</html>"])


def _call(method: str, path: str, call: dict[str, Any]) -> Iterator[str]:
    yield f'<h2 id="{_id(method, path)}">{method} {escape(path)}</h2>'
    yield f"<p>{escape(call.get('description', ''))}</p>"
    if parameters := call.get("parameters"):
        yield "<table><tr><th>parameter</th><th>in</th><th>schema</th></tr>"
        for one in parameters:
            schema = json.dumps(one["schema"])
            yield f"<tr><td>{escape(one['name'])}</td><td>{escape(one['in'])}</td>"
            yield f"<td><code>{escape(schema)}</code></td></tr>"
        yield "</table>"
    for media_type, content in call.get("requestBody", {}).get("content", {}).items():
        yield f"<h3>Body: {escape(media_type)}</h3>{_schema(content.get('schema', {}))}"
        for name, example in content.get("examples", {}).items():
            yield f"<p>{escape(example.get('summary', name))}:</p>{_json(example['value'])}"
    for status, response in call["responses"].items():
        for media_type, content in response.get("content", {}).items():
            yield f"<h3>Response {escape(status)}: {escape(media_type)}</h3>"
            yield _schema(content.get("schema", {}))


def _schema(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<p>Schema: <a href="#schema-{name}">{name}</a></p>'
    return _json(schema)


def _json(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"


def _id(method: str, path: str) -> str:
    return escape(f"{method.lower()}{path.replace('/', '-')}")
