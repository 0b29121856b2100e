"""Starts the server once a session, and gives tests the official clients, pointed at it."""
import re
import shlex
import subprocess
import threading

import anthropic
import openai
import pytest


def pytest_addoption(parser):
    parser.addoption("--server-command", required=True, help="starts a server that prints its URL")


class Live:
    """A running server: its URL, and everything it printed."""

    def __init__(self, command):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output = []
        self.url = None
        self.found = threading.Event()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        if not self.found.wait(120) or self.url is None:
            self.stop()
            raise RuntimeError("the server printed no URL:\n" + "".join(self.output))

    def read(self):
        for line in self.process.stdout:
            self.output.append(line)
            match = re.search(r"https?://[\w.\-]+:\d+", line)
            if match and self.url is None:
                self.url = match.group(0)
                self.found.set()
        self.found.set()

    def stop(self):
        self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@pytest.fixture(scope="session")
def server(request):
    live = Live(request.config.getoption("--server-command"))
    yield live
    live.stop()


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=600)


@pytest.fixture(scope="session")
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0, timeout=600)


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id


@pytest.fixture(scope="session")
def scripted(model):
    """Tests of exact answers are for the scripted model only."""
    if model != "fake":
        pytest.skip("needs the scripted model")


@pytest.fixture(scope="session")
def keeper(request, server):
    """A client of a server that keeps responses."""
    live = Live(request.config.getoption("--server-command") + " --keep")
    yield openai.OpenAI(base_url=live.url + "/v1", api_key="unused", max_retries=0, timeout=600)
    live.stop()


@pytest.fixture(scope="session")
def scripted_any(model):
    """Tests of exact answers that any scripted model gives."""
    if model not in ("fake", "scripted-v4.1"):
        pytest.skip("needs a scripted model")


@pytest.fixture(scope="session")
def speaks_dsml(model):
    """Tests of tools and of thinking on demand are for the scripted model of a DeepSeek dialect."""
    if model != "scripted-v4.1":
        pytest.skip("needs the scripted model of dialect v4.1")


@pytest.fixture(scope="session")
def real_dsml(model):
    """Tests of any answer that a model of dialect v4.1 may give: of models/nano."""
    if model != "nano":
        pytest.skip("needs models/nano")
