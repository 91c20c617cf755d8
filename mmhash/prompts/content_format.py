"""The engines' rules for the form of a message's content: parts if the template loops over them.

A template that loops over the content of a message gets the list of parts ("openai"); another gets
one text ("string"), in which the engine writes the placeholders.
"""

from collections.abc import Iterator

from jinja2 import nodes


def iterates_named_content(tree: nodes.Template) -> bool:
    """Return True if a template loops over the content of a variable that SGLang knows."""
    return any(
        _reads(loop.iter, name, "content")
        for loop in tree.find_all(nodes.For)
        for name in ("message", "msg", "m")
    )


def iterates_content(tree: nodes.Template) -> bool:
    """Return True if a template loops over the content of a message, by vLLM's rule."""
    loops = list(tree.find_all(nodes.For))
    aliases = _aliases(tree, "messages")
    targets = [loop.target for loop in loops if any(_reads(loop.iter, name) for name in aliases)]
    messages = {target.name for target in targets if isinstance(target, nodes.Name)}
    targets += [
        node.target
        for node in tree.find_all(nodes.Assign)
        if any(_reads(node.node, name) for name in aliases)
    ]
    # The engine fails at other targets, such as a member of a namespace.
    if not all(isinstance(target, nodes.Name) for target in targets):
        return False
    in_macros: set[int] = set()
    for macro in tree.find_all(nodes.Macro):
        inner = list(macro.find_all(nodes.For))
        in_macros.update(map(id, inner))
        parameters = _content_parameters(tree, macro, messages) if inner else set()
        if any(_name(loop.iter) in parameters for loop in inner):
            return True
    return any(
        any(_reads(loop.iter, name, "content") for name in messages)
        or (id(loop) not in in_macros and _name(loop.iter) == "content")
        for loop in loops
    )


def _aliases(tree: nodes.Template, root: str) -> set[str]:
    """Return the variable and all that are assigned from it."""
    assigned: dict[str, list[str]] = {}
    for node in tree.find_all(nodes.Assign):
        source = _source(node.node)
        if isinstance(source, nodes.Name) and isinstance(node.target, nodes.Name):
            assigned.setdefault(source.name, []).append(node.target.name)
    found, waiting = {root}, [root]
    while waiting:
        for name in assigned.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found


def _content_parameters(tree: nodes.Template, macro: nodes.Macro, messages: set[str]) -> set[str]:
    """Return the parameters of a macro that are given a message's content."""
    names = [argument.name for argument in macro.args]
    return {
        name
        for call in tree.find_all(nodes.Call)
        if _name(call.node) == macro.name
        for name, value in _arguments(call, names)
        if any(_reads(value, message, "content") for message in messages)
    }


def _arguments(call: nodes.Call, names: list[str]) -> Iterator[tuple[str, nodes.Node]]:
    yield from zip(names, call.args, strict=False)
    for keyword in call.kwargs:
        if isinstance(keyword, nodes.Keyword) and keyword.key in names:
            yield keyword.key, keyword.value


def _reads(node: nodes.Node, variable: str, member: str | None = None) -> bool:
    """Return True if an expression is a variable or a member of it, maybe filtered or sliced."""
    source = _source(node)
    if member is None:
        return _name(source) == variable
    if isinstance(source, nodes.Getattr):
        return _name(source.node) == variable and source.attr == member
    if isinstance(source, nodes.Getitem) and isinstance(source.arg, nodes.Const):
        return _name(source.node) == variable and source.arg.value == member
    return False


def _source(node: nodes.Node | None) -> nodes.Node | None:
    """Return the expression without the filters, tests and slices around it."""
    while isinstance(node, (nodes.Filter, nodes.Test)) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    return node


def _name(node: nodes.Node | None) -> str | None:
    return node.name if isinstance(node, nodes.Name) and node.ctx == "load" else None
