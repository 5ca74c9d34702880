"""A headless Chromium for the tests, with what it logged and asked the network for."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Without those about background work the browser looks for hosts of its own at every start.
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """Start the browser; skip the test where the machine has none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no chromium and chromedriver here; apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield started
    finally:
        started.quit()


def size(driver: Any, width: int, height: int = 900, *, scheme: str = "light") -> None:
    """Set the width of the window and the reader's colour scheme."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )


def open_page(driver: Any, page: Path) -> tuple[list[str], list[str]]:
    """Open a page; return what its console complains of and which addresses it asks for."""
    driver.get_log("performance")
    driver.get_log("browser")
    driver.get(page.as_uri())
    asked = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(str(message["params"]["request"]["url"]))
    loud = [entry["message"] for entry in driver.get_log("browser") if entry["level"] != "INFO"]
    return loud, asked


def screenshot(driver: Any) -> bytes:
    """Return the window's picture."""
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return base64.b64decode(shot["data"])
