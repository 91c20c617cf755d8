"""Plans of prompts: token ids, spans and block keys as an engine will have them, without pixels."""
