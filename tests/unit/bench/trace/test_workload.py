"""The knobs of a trace: reuse, window, turns, tenants, seed."""

from collections import Counter
from dataclasses import replace

import pytest

from bench.trace.published import distinct_images, references
from bench.trace.records import Request
from bench.trace.workload import AGENTS, VISIONARENA, WORKLOADS, Workload, generate, renamed, scaled

SMALL = [replace(one, sessions=60) for one in WORKLOADS.values()]


def _texts(trace: list[Request]) -> list[str]:
    return [
        part.text
        for one in trace
        for message in one.messages
        for part in message.content
        if not hasattr(part, "image")
    ]


@pytest.mark.parametrize("workload", SMALL, ids=lambda one: one.name)
def test_a_seed_gives_the_same_trace_and_another_seed_another(workload: Workload) -> None:
    assert generate(workload) == generate(workload)
    assert generate(workload) != generate(replace(workload, seed=1))


@pytest.mark.parametrize("workload", SMALL, ids=lambda one: one.name)
def test_the_control_repeats_no_content(workload: Workload) -> None:
    trace = generate(workload.without_reuse())
    images = [image.image for one in trace for image in one.images]
    assert images
    assert len(images) == len(set(images))
    assert len(_texts(trace)) == len(set(_texts(trace)))


@pytest.mark.parametrize("workload", SMALL, ids=lambda one: one.name)
def test_a_trace_with_reuse_repeats_content(workload: Workload) -> None:
    images = Counter(image.image for one in generate(workload) for image in one.images)
    assert max(images.values()) > 1


@pytest.mark.parametrize("reuse", [0.0, 0.3, 0.9])
def test_the_asked_part_of_the_images_is_known(reuse: float) -> None:
    trace = generate(Workload("any", sessions=300, images="first turn", reuse=reuse))
    assert distinct_images(trace) == pytest.approx(references(trace) * (1 - reuse), abs=1)


def test_tenants_share_no_image() -> None:
    trace = generate(replace(VISIONARENA, sessions=200, tenants=4))
    tenants: dict[str, set[str]] = {}
    for one in trace:
        for image in one.images:
            tenants.setdefault(image.image, set()).add(one.tenant)
    assert all(len(users) == 1 for users in tenants.values())
    assert len({one.tenant for one in trace}) == 4


def test_a_window_keeps_the_newest_images() -> None:
    grown = generate(replace(AGENTS, sessions=2))
    windowed = generate(replace(AGENTS, sessions=2, window=5))
    assert max(len(one.images) for one in grown) == 33
    assert max(len(one.images) for one in windowed) == 5
    for long, short in zip(grown, windowed, strict=True):
        assert short.images == long.images[-5:]


def test_a_turn_has_the_messages_of_the_turns_before() -> None:
    last: dict[str, Request] = {}
    for one in generate(replace(VISIONARENA, sessions=50, turns=(2, 3))):
        previous = last.get(one.session)
        if previous is not None:
            assert one.turn == previous.turn + 1
            assert one.at >= previous.at
            assert one.messages[: len(previous.messages)] == previous.messages
        last[one.session] = one
    assert {one.turn for one in last.values()} == {1, 2}


def test_a_session_ends_before_its_context_is_full() -> None:
    trace = generate(replace(AGENTS, sessions=3, context=8000))
    assert max(one.tokens + one.output_tokens for one in trace) <= 8000
    assert len(trace) < len(generate(replace(AGENTS, sessions=3)))


def test_a_scaled_trace_has_the_same_content_and_fewer_tokens() -> None:
    trace = generate(replace(VISIONARENA, sessions=100))
    small = scaled(trace, 0.2, 0.02)
    assert [one.at for one in small] == [one.at for one in trace]
    assert [[i.image for i in one.images] for one in small] == [
        [i.image for i in one.images] for one in trace
    ]
    assert sum(one.tokens for one in small) == pytest.approx(
        0.2 * sum(one.tokens for one in trace), rel=0.1
    )


def test_a_renamed_trace_has_the_same_sizes_and_other_content() -> None:
    trace = generate(replace(VISIONARENA, sessions=50))
    other = renamed(trace, "second-")
    assert [one.tokens for one in other] == [one.tokens for one in trace]
    assert distinct_images(other) == distinct_images(trace)
    assert set(_texts(trace)).isdisjoint(_texts(other))
    assert distinct_images([*trace, *other]) == 2 * distinct_images(trace)
