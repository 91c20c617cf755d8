"""Find out whether a chat template takes a message's content as a list of parts or as one text.

Engines give the list of parts ("openai") to a template that loops over the content. Any other
template gets one text ("string"), into which the engine writes the placeholders.
"""

from collections.abc import Iterable, Iterator

from jinja2 import nodes


def iterates_member(tree: nodes.Template, messages: Iterable[str]) -> bool:
    """Return True if a template loops over the content of a variable with one of these names."""
    return any(
        _reads(loop.iter, name, "content") for loop in tree.find_all(nodes.For) for name in messages
    )


def iterates_content(tree: nodes.Template, *, binds_parameters: bool) -> bool:
    """Return True if vLLM finds a loop over the content of a message.

    From 0.30 on, vLLM follows a content into the parameters of macros (`binds_parameters`). Older
    releases count any loop over something named `content`. If vLLM cannot follow the variables,
    such as messages assigned to a tuple, it takes the template for one that wants texts.
    """
    loops = list(tree.find_all(nodes.For))
    aliases = _aliases(tree, "messages")
    targets = [
        loop.target for loop in loops if any(_reads(loop.iter, name) for name in aliases or ())
    ]
    if aliases is None or not all(isinstance(target, nodes.Name) for target in targets):
        return False
    messages = {target.name for target in targets if isinstance(target, nodes.Name)}
    in_macros = _names_in_macros(tree, messages) if binds_parameters else {}
    for loop in loops:
        names = in_macros.get(id(loop), {"content"})
        if any(_reads(loop.iter, name, "content") for name in messages) or (
            _name(loop.iter) in names
        ):
            return isinstance(loop.target, nodes.Name)
    return False


def _names_in_macros(tree: nodes.Template, messages: set[str]) -> dict[int, set[str]]:
    """Map each loop in a macro, by its identity, to the parameters that may hold a content."""
    found: dict[int, set[str]] = {}
    for macro in tree.find_all(nodes.Macro):
        inner = list(macro.find_all(nodes.For))
        parameters = _content_parameters(tree, macro, messages) if inner else set()
        for loop in inner:
            found[id(loop)] = parameters or found.get(id(loop), set())
    return found


def _aliases(tree: nodes.Template, root: str) -> set[str] | None:
    """Return a variable and its aliases, or None if an assignment's target is not a variable."""
    assigned: dict[str, list[nodes.Expr]] = {}
    for node in tree.find_all(nodes.Assign):
        source = _source(node.node)
        if isinstance(source, nodes.Name):
            assigned.setdefault(source.name, []).append(node.target)
    found, waiting = {root}, [root]
    while waiting:
        for target in assigned.get(waiting.pop(), ()):
            if not isinstance(target, nodes.Name):
                return None
            if target.name not in found:
                found.add(target.name)
                waiting.append(target.name)
    return found


def _content_parameters(tree: nodes.Template, macro: nodes.Macro, messages: set[str]) -> set[str]:
    """Return the parameters of a macro that receive a message's content."""
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
    """Return True if an expression reads a variable or its member, perhaps filtered or sliced."""
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
