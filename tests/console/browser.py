"""Debian's Chromium, driven by selenium, and axe-core, for tests of the console.

`make lab NAME=console-test` installs selenium.  axe-core is one file, a test tool that
is not shipped: `npm pack` downloads it into the cache folder of the real clients.
"""

import json
import subprocess
import tarfile
from contextlib import contextmanager
from pathlib import Path

from tests.interop.toolchains import absent, cache_folder

AXE = "4.14.1"
BROWSER, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
LOOKS = {
    "light": ("light", 1280), "dark": ("dark", 1280), "wide": ("light", 1920),
    "narrow": ("light", 390),
}  # fmt: skip
EXPECTED = ("Failed to load resource", "net::ERR_")
"""What the browser itself logs of answers that are errors."""


def missing():
    """Say what this machine lacks, or None."""
    if not (BROWSER.exists() and DRIVER.exists()):
        return "no chromium and chromium-driver (apt-get install) on this machine"
    try:
        import selenium  # noqa: F401 - looked for
    except ImportError:
        return "no selenium: make lab NAME=console-test installs it"
    return absent("npm")


def axe_source():
    """Return the text of axe-core."""
    folder = cache_folder()
    archive = folder / f"axe-core-{AXE}.tgz"
    if not archive.exists():
        command = ["npm", "pack", "--silent", f"axe-core@{AXE}"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(archive) as packed:
        file = packed.extractfile("package/axe.min.js")
        assert file is not None, archive
        return file.read().decode()


class Page:
    """The console in a browser; all calls block."""

    def __init__(self, driver, port):
        self.driver, self.port = driver, port
        self._axe = axe_source()

    def open(self, place):
        """Open a view in a fresh page."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(f"http://127.0.0.1:{self.port}/{place}")

    def look(self, name):
        """Take the colours and the width of a look."""
        scheme, width = LOOKS[name]
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def run(self, script, *arguments):
        """Return what a function body in the page returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition, seconds=8):
        """Wait until an expression is true; AssertionError with the page's text."""
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        try:
            WebDriverWait(self.driver, seconds, 0.05).until(
                lambda driver: driver.execute_script(f"return ({condition})")
            )
        except TimeoutException:
            text = self.run("return document.body.innerText")
            raise AssertionError(f"{condition} in {text[:500]}") from None

    def settled(self):
        """Wait until the view is there: data, or the reason why there are none."""
        self.wait("document.querySelector('#main > :not(.loading)') !== null")

    def violations(self):
        """Return what axe-core finds wrong, as sentences."""
        if not self.run("return typeof axe === 'object'"):
            source = {"expression": self._axe}
            self.driver.execute_cdp_cmd("Runtime.evaluate", source)
        found = self.driver.execute_async_script(
            "const done = arguments[0];"
            "axe.run(document, {resultTypes: ['violations']}).then((result) =>"
            " done(result.violations.map((each) => [each.id, each.help,"
            " each.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))])))"
        )
        return [json.dumps(each) for each in found]

    def complaints(self):
        """Return exceptions and refusals of the policy that the browser logged."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if not any(text in entry["message"] for text in EXPECTED)
        ]

    def is_wider_than_the_screen(self):
        """Return whether one has to scroll to the side."""
        root = "document.documentElement"
        return self.run(f"return {root}.scrollWidth > {root}.clientWidth")

    def broken_words(self):
        """Return words of table cells that have a line break inside.

        Ids may break, and so may names without a blank.
        """
        return self.run("""
            const found = [];
            for (const cell of document.querySelectorAll(
                'main tbody td:not(.mono), main tbody th:not(.mono)')) {
              if (cell.textContent.includes('onerror')) continue;  // a hostile name
              const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
              while (walker.nextNode())
                for (const word of walker.currentNode.data.matchAll(/\\w{2,20}/g)) {
                  const range = document.createRange();
                  range.setStart(walker.currentNode, word.index);
                  range.setEnd(walker.currentNode, word.index + word[0].length);
                  const tops = new Set(
                    [...range.getClientRects()].map((each) => Math.round(each.top)));
                  if (tops.size > 1) found.push(word[0]);
                }
            }
            return found;""")

    def is_current_view_shown(self):
        """Return whether the link of the view is inside of the list of views."""
        return self.run("""
            const link = document.querySelector('.rail a[aria-current]');
            if (!link) return true;
            const [inner, outer] = [link, link.closest('.rail')].map((each) =>
              each.getBoundingClientRect());
            return inner.left >= outer.left - 1 && inner.right <= outer.right + 1;""")


@contextmanager
def browser(port):
    """Start the browser; `port` is that of the console."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for each in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{each}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        driver.set_script_timeout(30)
        yield Page(driver, port)
    finally:
        driver.quit()
