"""A model's own processor, asked in a real helper process.

A helper takes seconds to start, so most tests share one.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from mmhash.errors import InputValueError
from mmhash.prompts import Model, UnknownModelError
from mmhash.prompts.processor.client import ModelProcessor, ProcessorError
from mmhash.prompts.processor.messages import Question
from tests.support import processed_models
from tests.support.processed_models import (
    FRAMED,
    HANGING,
    HUNGRY,
    IMAGE_TOKEN,
    KILLED,
    NEGATIVE,
    READ,
)

pytestmark = pytest.mark.slow


def question(width: int, height: int = 5) -> Question:
    return Question("image", IMAGE_TOKEN, width, height)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> ModelProcessor:
    folder = processed_models.write_hostile(tmp_path_factory.mktemp("hostile"))
    processor = ModelProcessor(folder, trust_remote_code=True, question_s=1.0)
    processor.facts()
    return processor


@pytest.fixture(scope="module")
def paddle(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model.load(processed_models.write_paddleocr(tmp_path_factory.mktemp("paddle")))


def ask(processor: ModelProcessor, width: int) -> int:
    asked = question(width)
    return len(processor.learn(asked, processor.ask(asked)).token_ids)


@pytest.mark.parametrize("width", [KILLED, HANGING])
def test_a_question_that_ends_the_worker_fails_and_the_next_is_answered(
    hostile: ModelProcessor, width: int
) -> None:
    with pytest.raises(ProcessorError, match="process"):
        ask(hostile, width)
    assert ask(hostile, 9) == 9


def test_a_question_that_takes_too_much_memory_is_refused(hostile: ModelProcessor) -> None:
    with pytest.raises(InputValueError, match="MemoryError"):
        ask(hostile, HUNGRY)
    assert ask(hostile, 9) == 9


def test_nonsense_is_refused_and_not_remembered(hostile: ModelProcessor) -> None:
    with pytest.raises(ProcessorError, match="without tokens"):
        ask(hostile, NEGATIVE)
    with pytest.raises(ProcessorError, match="malformed"):
        hostile.learn(question(7), b"\x01")
    assert hostile.known(question(NEGATIVE)) is None


def test_only_the_token_of_the_image_takes_embeddings(hostile: ModelProcessor) -> None:
    """The processor also lists the tokens around it, for the types of tokens."""
    asked = question(FRAMED)
    assert hostile.learn(asked, hostile.ask(asked)).embeds == [(1, 3)]


def test_an_image_that_is_read_back_for_its_shape_has_no_pixels(hostile: ModelProcessor) -> None:
    asked = question(READ, height=77)
    assert len(hostile.learn(asked, hostile.ask(asked)).token_ids) == 77


def test_a_helper_that_ended_is_started_again(hostile: ModelProcessor) -> None:
    found = children()
    keepers = [
        int(pid)
        for pid in found
        if b"processor.helper" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    for keeper in keepers:
        for worker in Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split():
            os.kill(int(worker), signal.SIGKILL)
        os.kill(keeper, signal.SIGKILL)
        os.waitid(os.P_PID, keeper, os.WEXITED | os.WNOWAIT)
    for _ in range(20):  # until the next is loaded
        with suppress(ProcessorError):
            assert ask(hostile, 9) == 9
            return
    pytest.fail("the helper is not started again")


def test_a_program_in_the_directory_is_not_run_unless_the_operator_says_so(tmp_path: Path) -> None:
    folder = processed_models.write_hostile(tmp_path)
    with pytest.raises(UnknownModelError, match="custom code"):
        Model.load(folder, unchecked=True)


def test_a_model_type_that_is_not_checked_has_no_plan(tmp_path: Path) -> None:
    folder = processed_models.write_hostile(tmp_path)
    with pytest.raises(UnknownModelError, match="mark the model as unchecked"):
        Model.load(folder, trust_remote_code=True)


def test_an_answer_is_the_expansion_of_the_item(paddle: Model) -> None:
    processor = paddle.files.model_processor
    try:
        answer = processor.ask(question(640, 360))
    except ProcessorError:  # on a busy machine the first answer may take too long
        answer = processor.ask(question(640, 360))
    expansion = processor.learn(question(640, 360), answer)
    token = paddle.files.encoder.token_id(IMAGE_TOKEN)
    assert (expansion.token_ids, expansion.grid) == ([token] * (26 * 46 // 4), (1, 26, 46))
    assert expansion.embeds == [(0, 26 * 46 // 4)]
    assert processor.known(question(640, 360)) is expansion


def test_the_identity_depends_on_the_files(
    paddle: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = paddle.files.model_processor
    facts = processor.facts()  # of one helper for all: it is the same in each
    monkeypatch.setattr(ModelProcessor, "facts", lambda _: facts)
    other = processed_models.write_paddleocr(tmp_path)
    assert ModelProcessor(other).identity() == processor.identity()
    (other / "config.json").write_text('{"model_type": "paddleocr_vl", "x": 1}')
    assert ModelProcessor(other).identity() != processor.identity()


def test_forked_processes_share_one_helper(hostile: ModelProcessor) -> None:
    before = children()
    forked = os.fork()
    if forked == 0:
        status = 1
        with suppress(ProcessorError):  # or this copy of pytest would go on
            status = ask(hostile, 11) if not children() else 1
        os._exit(status)
    assert ask(hostile, 9) == 9
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 11
    assert children() == before


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
