"""A real Chromium, and the server as a user starts it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Thread

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    expect,
    sync_playwright,
)

# A busy machine is not a wrong answer.
PATIENCE_MS = 60_000
INSTALL_S = 200

# To the browser no secure origin, as a host of a plain network is.
PLAIN_HOST = "plain.test"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--picture", help="where to keep the picture of the page for the README")


@contextmanager
def _serving(*arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", "mmhash", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        log = iter(server.stderr.readline, "")
        found = (re.search(r"running on (http://\S+)", line) for line in log)
        url = next(match[1] for match in found if match)
        # A log that nobody reads would fill its pipe, and then hold the server.
        reading = Thread(target=server.stderr.read)
        reading.start()
        try:
            yield url
        finally:
            server.terminate()
            reading.join()
    assert server.returncode == 0


@pytest.fixture(scope="session")
def serving() -> Callable[..., AbstractContextManager[str]]:
    """Start a server with those arguments; its URL."""
    return _serving


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a server answers that has its defaults."""
    with _serving() as url:
        yield url


@pytest.fixture
def plain_url(url: str) -> str:
    """The same server by a name that is no secure origin."""
    return url.replace("127.0.0.1", PLAIN_HOST)


# Not for the session: while Playwright runs, no other test could run an event loop of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, or Google's Chrome, or the one that Playwright brings."""
    installed = shutil.which("chromium") or shutil.which("google-chrome")
    if installed is None:
        _install_chromium()
    # Chromium's sandbox refuses to work for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    arguments.append(f"--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1")
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=installed, args=arguments, timeout=PATIENCE_MS
            )
        except Error as error:
            if installed is not None:
                raise
            pytest.skip(f"Playwright's Chromium does not start here: {error.message[:200]}")
        yield browser
        browser.close()


def _install_chromium() -> None:
    """Into Playwright's own cache, where it is found the next time."""
    command = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"there is no Chromium, and in {INSTALL_S} s none could be fetched")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"there is no Chromium, and none can be fetched: {error.stderr[-200:]}")


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A person's browser, who lets the page use the clipboard."""
    with browser.new_context(permissions=["clipboard-read", "clipboard-write"]) as context:
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        yield context


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """What the browser complains of; whatever is left in the end is a failure."""
    found: list[str] = []
    yield found
    assert found == []


@pytest.fixture
def tab(context: BrowserContext, complaints: list[str]) -> Iterator[Page]:
    """A new tab, still empty."""

    def note(message: ConsoleMessage) -> None:
        # An answer that is a problem is no failure of the page.
        if message.type in {"error", "warning"} and not message.text.startswith("Failed to load"):
            complaints.append(message.text)

    with context.new_page() as tab:
        tab.on("console", note)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        yield tab


@pytest.fixture
def page(tab: Page, url: str) -> Page:
    """The page, ready: its charts are there."""
    tab.goto(url)
    expect(tab.get_by_role("heading", name="This service")).to_be_visible()
    return tab
