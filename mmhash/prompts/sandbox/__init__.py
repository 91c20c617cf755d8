"""A jinja2 environment whose templates have bounded work and memory, in one thread.

jinja2's sandbox keeps a template from the system, but not from loops and from texts of gigabytes.
Here each step of a template spends from a budget: loops and macros by the nodes in their bodies,
operations on texts and lists by their sizes. What could make a large value is checked before it is
made. Filters, methods and statements that chat templates do not use are refused.
"""

from mmhash.prompts.sandbox.compiler import bound_work
from mmhash.prompts.sandbox.environment import MAX_TEXT, Sandbox
from mmhash.prompts.sandbox.functions import FILTERS, FUNCTIONS, TESTS

__all__ = ["MAX_TEXT", "Sandbox", "bound_work", "new_sandbox"]


def new_sandbox() -> Sandbox:
    """Return an environment with the filters, tests and functions that chat templates use."""
    return Sandbox(FILTERS, TESTS, dict(FUNCTIONS))
