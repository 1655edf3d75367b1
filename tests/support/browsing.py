"""A real browser for the tests of pages: Debian's Chromium, driven by playwright."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    """One for all tests of a file."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """``visit(path, width, scheme)`` opens a page; an error of its script, a dialog or a request fails the test."""
    contexts, wrong = [], []

    def visit(path, width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: wrong.append(request.url) if not request.url.startswith("file:") else None)
        page.goto(path.as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()
    assert wrong == []
