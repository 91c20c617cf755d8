"""Vectors of prompts from a real vLLM: `python -m tests.oracle.templates`, also by `make oracle`.

vLLM runs in its environment of `make live`, which is built if it is not there. The requests are planned here
first, because vLLM is sent the plan's annotated request. Then this file runs in that environment,
without the project, and writes vLLM's ids, spans and hashes beside each request.
"""

import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors" / "vllm_prompts.json"


def main() -> None:
    """Write the vectors."""
    from tests.live.environments import Environment
    from tests.oracle.chats import MODEL_ID, RELEASE, cases
    from tests.support import prompt_models

    environment = Environment("vllm", RELEASE)
    environment.build()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = prompt_models.write_qwen2_vl(folder / MODEL_ID)
        made = cases(model)
        (folder / "cases.json").write_text(json.dumps(made))
        # vLLM hashes its name of the model with options: a relative one is the same each time.
        command = [environment.command("python"), __file__, MODEL_ID, str(folder / "cases.json")]
        subprocess.run(command, check=True, cwd=folder)
        answered = json.loads((folder / "cases.json").read_text())
    VECTORS.write_text(json.dumps({"release": RELEASE, "cases": answered}, indent=1) + "\n")


def answer(model: str, path: Path) -> None:
    """Add vLLM's answer to each case; runs in vLLM's environment."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.renderers import renderer_from_config

    limits = {"image": 8}
    config = EngineArgs(
        model=model, load_format="dummy", enforce_eager=True, limit_mm_per_prompt=limits
    ).create_engine_config()
    renderer = renderer_from_config(config)
    cases = json.loads(path.read_text())
    for case in cases:
        try:
            # vLLM renames members of messages in place.
            made = _render(renderer, config.model_config, copy.deepcopy(case))
        except Exception as error:  # noqa: BLE001  (any refusal is an answer)
            case["error"] = f"{type(error).__name__}: {error}"[:200]
            continue
        case["token_ids"] = made["prompt_token_ids"]
        spans = made.get("mm_placeholders") or {}
        case["spans"] = [[span.offset, span.length] for span in spans.get("image", ())]
        case["hashes"] = list((made.get("mm_hashes") or {}).get("image", ()))
    path.write_text(json.dumps(cases))


def _render(renderer: Any, model_config: Any, case: dict[str, Any]) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    if "messages" not in case["request"]:
        request = CompletionRequest.model_validate(case["request"])
        is_text = isinstance(request.prompt, str)
        prompt = {"prompt" if is_text else "prompt_token_ids": request.prompt}
        (made,) = renderer.render_cmpl([prompt], request.build_tok_params(model_config))
        return made
    request = ChatCompletionRequest.model_validate(case["request"])
    tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
    chat = request.build_chat_params(case["template"], "auto").with_defaults(
        {"tools": tools, "tokenize": False},
        default_mm_processor_kwargs=request.mm_processor_kwargs,
    )
    names = ("mm_processor_kwargs", "cache_salt")
    extras = {name: value for name in names if (value := getattr(request, name)) is not None}
    _, (made,) = renderer.render_chat(
        [request.messages], chat, request.build_tok_params(model_config), prompt_extras=extras
    )
    return made


if __name__ == "__main__":
    if len(sys.argv) == 3:
        answer(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
