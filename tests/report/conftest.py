"""Tiny runs to report on, and headless Chromium over its debugging pipe (JSON messages that end with a zero byte)."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from dcnn.report import write_page
from dcnn.results import fit_config as fit

TINY = {"features": 16, "filters": 16, "blocks": 1, "gaussians": 10}
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]

# The browser reads commands from descriptor 3 and answers on 4; the copies keep one from overwriting the other.
LAUNCH = """import fcntl, os, sys
copies = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]
os.dup2(copies[0], 3), os.dup2(copies[1], 4)
os.execv(sys.argv[3], sys.argv[3:])"""


def _train_atoms(folder, recipe="best", seed=0, epochs=2, **data):
    config = {
        "kind": "atoms",
        "recipe": recipe,
        "seed": seed,
        "data": {"path": "demo", "train": 30, "validation": 10, "test": 20, **data},
        "model": {"name": "schnet", "overrides": TINY},
        "training": {"epochs": epochs, "batch_size": 10, "accelerator": "cpu"},
    }
    fit(config, folder)
    return folder


def _train_pde(folder, problem="advection", recipe="best", **parameters):
    config = {
        "kind": "pde",
        "recipe": recipe,
        "problem": {"name": problem, "parameters": parameters},
        "network": {"width": 8, "depth": 2},
        "points": {"interior": 64, "boundary": 16, "initial": 16},
        "training": {"steps": 6, "accelerator": "cpu", "stages": [{"optimizer": "adam", "dtype": "float64"}]},
        "steps_per_epoch": 2,
    }
    fit(config, folder)
    return folder


@pytest.fixture
def train_atoms():
    return _train_atoms


@pytest.fixture
def train_pde():
    return _train_pde


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def grid(tmp_path_factory):
    """Two recipes of SchNet, one with two seeds, and what `dcnn compare` calls the folder of them."""
    folder = tmp_path_factory.mktemp("grid")
    for recipe, seed in (("original", 0), ("best", 0), ("best", 1)):
        _train_atoms(folder / f"schnet-{recipe}-{seed}", recipe, seed)
    return folder


@pytest.fixture(scope="session")
def advection(tmp_path_factory):
    return _train_pde(tmp_path_factory.mktemp("pde") / "advection")


@pytest.fixture(scope="session")
def page(grid, advection, tmp_path_factory):
    """A page of potentials and a PDE together."""
    return write_page([grid, advection], tmp_path_factory.mktemp("page") / "page.html", "Tiny <runs>")


@pytest.fixture(scope="session")
def browser():
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("chromium is not installed and cannot be (apt-get as root puts it there)")
    tab = Browser(chromium)
    yield tab
    tab.close()


def find_chromium():
    """The browser's path; it is installed with apt-get if it is missing and that is possible. None: it is not."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "timeout": 900}
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]):
            subprocess.run(command, **quiet, check=False)
        found = shutil.which("chromium")
    return found


class Browser:
    """One tab. `problems` collects exceptions, console errors and failed loads of the page."""

    def __init__(self, chromium):
        self.profile = tempfile.TemporaryDirectory()
        to_browser, self._send = os.pipe()
        self._receive, from_browser = os.pipe()
        command = [chromium, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(to_browser), str(from_browser), *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _next(self):
        while b"\0" not in self._buffer:
            data = os.read(self._receive, 1 << 20)
            assert data, "the browser went away"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, width=1200, height=900, dark=False):
        self.events.clear()
        phone = {"deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, **phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def run(self, expression):
        """The value of a JavaScript expression (awaited)."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def problems(self):
        self.run("0")
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("exception", {}).get("description", str(params)))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(str(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    def requests(self):
        """Addresses that the page asked for, other than itself and data inside it."""
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in urls[1:] if not url.startswith("data:")]

    def screenshot(self, path: Path, whole=True):
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(shot["data"]))

    def _clip(self, whole):
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait(timeout=30)
        os.close(self._send)
        os.close(self._receive)
        for _ in range(20):  # helpers of the browser may still write to the profile
            try:
                self.profile.cleanup()
                return
            except OSError:
                time.sleep(0.1)
