"""A headless Chromium, driven by the DevTools protocol over a pipe: nothing but the standard library."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page. Close it: `with Browser() as page`."""

    def __init__(self, timeout_s=60):
        self.timeout_s = timeout_s
        self.dir = tempfile.mkdtemp(prefix="ropeway-browser-")
        to_read, self.to = os.pipe()
        self.of, of_write = os.pipe()

        # The protocol is on descriptors 3 and 4 of the browser.
        def place():
            os.dup2(to_read, 20)
            os.dup2(of_write, 21)
            os.dup2(20, 3)
            os.dup2(21, 4)

        self.process = subprocess.Popen(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={self.dir}", "--window-size=1280,1000"],
            preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(of_write)
        self.buffer, self.last, self.session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.returncode is not None:
            return
        self.process.terminate()
        self.process.wait()
        os.close(self.to)
        os.close(self.of)
        shutil.rmtree(self.dir, ignore_errors=True)

    def receive(self):
        limit = time.monotonic() + self.timeout_s
        while b"\0" not in self.buffer:
            if not select.select([self.of], [], [], max(0, limit - time.monotonic()))[0]:
                raise TimeoutError("the browser says nothing")
            data = os.read(self.of, 1 << 20)
            if not data:
                raise EOFError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            answer = self.receive()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url):
        self.events = []
        self.call("Page.navigate", url="about:blank")
        self.events = []
        self.call("Page.navigate", url=url)
        # A late load event of the blank page is none of this one.
        limit = time.monotonic() + self.timeout_s
        while self.js("location.protocol + document.readyState") != "file:complete":
            if time.monotonic() > limit:
                raise TimeoutError(url)
            time.sleep(0.05)

    def js(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(got["exceptionDetails"])
        return got["result"].get("value")

    def settle(self):
        """What a scroll brings near is drawn: two frames."""
        self.call("Runtime.evaluate", expression="new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))", awaitPromise=True)

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text="\r" if key == "Enter" and kind == "keyDown" else "")

    def click(self, selector):
        """A true click in the middle of it, as by a hand: what lies above it would take it."""
        at = self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null; e.scrollIntoView({{block: 'center'}});"
                     " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        if at is None:
            raise LookupError(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def screen(self, width, height, phone=False, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        with open(path, "wb") as out:
            out.write(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def complaints(self):
        """Exceptions of scripts, and whatever was asked of a network."""
        thrown = [e["params"]["exceptionDetails"].get("exception", {}).get("description", "?") for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return thrown + [u for u in urls if not u.startswith(("file://", "about:"))]
