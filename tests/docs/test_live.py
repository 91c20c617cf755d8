"""The tables of docs/live.md and docs/gateway.md are the results of the last live run."""

from tests.live import results


def test_pages_show_the_newest_results() -> None:
    for page, files in results.PAGES.items():
        text = page.read_text()
        for file in files:
            assert (results.FOLDER / f"{file}.md").read_text() in text, f"{page.name}: {file}"
            assert results.embed(text, file) == text
