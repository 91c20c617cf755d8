"""The page at `/docs`: the OpenAPI document as HTML, without scripts."""

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
<link rel="stylesheet" href="page/docs.css">
</head>
<body>
<header>
<div class="line">
<h1>The HTTP API <small>mmhash {version}</small></h1>
<nav aria-label="Pages">{links}</nav>
</div>
<p>For programs: <a href="openapi.json">openapi.json</a>.</p>
</header>
<main>
"""

_PROBLEM = "ProblemAnswer"


def render(document: dict[str, Any], links: str) -> str:
    """Return the page of an OpenAPI document, with links to the other pages."""
    calls = [
        (method.upper(), path, call)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
    ]
    parts = [_HEAD.replace("{version}", escape(document["info"]["version"]))]
    parts[0] = parts[0].replace("{links}", links)
    parts.append('<nav aria-label="Calls">')
    parts += [
        f'<a href="#{_id(method, path)}">{method} {escape(path)}</a>' for method, path, _ in calls
    ]
    parts.append("</nav>")
    for method, path, call in calls:
        parts += _call(method, path, call)
    parts.append("<h2>Schemas</h2>")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += [f'<section id="schema-{escape(name)}"><h3>{escape(name)}</h3>', *_schema(schema)]
        parts.append("</section>")
    return "\n".join([*parts, "</main>", "</body>", "</html>"])


def _call(method: str, path: str, call: dict[str, Any]) -> Iterator[str]:
    yield f'<section id="{_id(method, path)}"><h2>{method} <code>{escape(path)}</code></h2>'
    yield f"<p>{escape(call.get('description', ''))}</p>"
    if parameters := call.get("parameters"):
        yield from _table("parameter", map(_parameter, parameters))
    bodies = call.get("requestBody", {}).get("content", {})
    if bodies:
        yield from _table("body", map(_content, bodies.items()))
    for content in bodies.values():
        for name, example in content.get("examples", {}).items():
            yield f"<details><summary>{escape(example.get('summary', name))}</summary>"
            value = json.dumps(example["value"], indent=2, ensure_ascii=False)
            yield f"<pre>{escape(value)}</pre></details>"
    answers = [
        content
        for status, response in call["responses"].items()
        if status != "default"
        for content in response.get("content", {}).items()
    ]
    yield from _table("response", map(_content, answers))
    yield f'<p class="note">Any other response is a <a href="#schema-{_PROBLEM}">problem</a>.</p>'
    yield "</section>"


def _parameter(parameter: dict[str, Any]) -> tuple[str, str, str]:
    schema = parameter["schema"]
    place = "" if parameter["in"] == "query" else f" ({parameter['in']})"
    required = ", required" if parameter.get("required") else ""
    return (
        f"<code>{escape(parameter['name'])}</code>{escape(place)}",
        _type(schema) + required,
        escape(schema.get("description", "")),
    )


def _content(content: tuple[str, dict[str, Any]]) -> tuple[str, str, str]:
    media_type, described = content
    return f"<code>{escape(media_type)}</code>", _type(described.get("schema", {})), ""


def _table(head: str, rows: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    yield f"<table><thead><tr><th>{head}</th><th>type</th><th></th></tr></thead><tbody>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    yield "</tbody></table>"


def _schema(schema: dict[str, Any]) -> Iterator[str]:
    yield f"<p>{escape(schema.get('description', ''))}</p>"
    required = schema.get("required", ())
    members = schema.get("properties", {})
    if not members:
        yield f"<p>{_type(schema)}</p>"
        return
    yield from _table(
        "member",
        (
            (
                f"<code>{escape(name)}</code>",
                _type(member) + (", required" if name in required else ""),
                escape(member.get("description", "")),
            )
            for name, member in members.items()
        ),
    )


def _type(schema: dict[str, Any]) -> str:
    """Return the type of a schema in words, with a link to one that has a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values:
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    match schema.get("type"):
        case "array" if "items" in schema:
            return f"list of {_type(schema['items'])}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {_type(schema['additionalProperties'])}"
        case str(kind):
            return escape(kind)
    return "any"


def _id(method: str, path: str) -> str:
    return escape(f"{method.lower()}{path.replace('/', '-')}")
