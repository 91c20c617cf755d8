"""A real Chromium, and the server as a user starts it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

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

from tests.support.service import serving

# A busy machine is not a wrong answer.
PATIENCE_MS = 60_000
INSTALL_S = 200


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pictures", help="the folder to keep the pictures of the pages in")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a server with the default settings."""
    with serving() as service:
        yield service.url


# Not for the session: while Playwright runs, no other test could run an event loop of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, or Google's Chrome, or the one that Playwright brings."""
    installed = shutil.which("chromium") or shutil.which("google-chrome")
    if installed is None:
        _install_chromium()
    # Chromium's sandbox refuses to work for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    arguments += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=installed, args=arguments, timeout=PATIENCE_MS
            )
        except Error as error:
            if installed is not None:
                raise
            pytest.skip(f"Playwright's Chromium does not start here: {error.message[:200]}")
        expect.set_options(timeout=PATIENCE_MS)
        yield browser
        browser.close()


def _install_chromium() -> None:
    """Install it into Playwright's cache."""
    command = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"there is no Chromium, and in {INSTALL_S} s none could be fetched")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"there is no Chromium, and none can be fetched: {error.stderr[-200:]}")


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser that lets the page use the clipboard."""
    with browser.new_context(permissions=["clipboard-read", "clipboard-write"]) as context:
        context.set_default_timeout(PATIENCE_MS)
        yield context


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """The browser's messages; any left at the end is a failure."""
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
    """The page, once it knows the engines."""
    with tab.expect_response("**/info"):
        tab.goto(url)
    return tab
