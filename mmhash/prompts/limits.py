"""The most that a prompt may have. These limits bound a plan's time and memory."""

MAX_TEXT = 4 << 20
"""Characters: about a million tokens of English."""

MAX_TOKENS = 1 << 20
"""Token ids of a prompt, and so of an item."""

MAX_ITEMS = 1024
