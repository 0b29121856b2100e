"""The chat in a terminal: a pseudo-terminal types, pastes and interrupts."""
import json
import os
import pty
import select
import signal
import tempfile
import time
import unittest

import server as e2e


class ChatTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.output = b""
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.chdir(self.folder.name)
            os.execv(e2e.BINARY, [e2e.BINARY, "run", e2e.TINY, "--temperature", "0", "--threads", "1", "--kv-memory", "64MiB", "--max-tokens", "2000"])

    def tearDown(self):
        try:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self.terminal)
        self.folder.cleanup()

    def type(self, text):
        os.write(self.terminal, text.encode())

    def wait_for(self, text):
        """Reads until `text` came since the last wait."""
        deadline = time.time() + e2e.PATIENCE_S
        while text.encode() not in self.output:
            if time.time() > deadline:
                self.fail("no %r in %r" % (text, self.output[-2000:]))
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.output += os.read(self.terminal, 65536)
        self.output = self.output.split(text.encode(), 1)[1]

    def test_paste_interrupt_save_and_end(self):
        self.wait_for("> ")
        self.type("see: \x1b[200~first line\rsecond line\x1b[201~")
        self.wait_for("second line")
        self.type("\r")
        time.sleep(0.5)
        self.type("\x03")  # stops the answer, not the chat
        self.wait_for("tokens/s")
        self.wait_for("> ")
        self.type("/save chat.json\r")
        self.wait_for("saved")
        self.wait_for("> ")
        with open(os.path.join(self.folder.name, "chat.json")) as f:
            messages = json.load(f)["messages"]
        self.assertEqual([m["role"] for m in messages], ["user", "assistant"])
        self.assertEqual(messages[0]["content"], "see: first line\nsecond line")
        self.type("/reset\r")
        self.wait_for("begins anew")
        self.wait_for("> ")
        self.type("\x04")
        deadline = time.time() + 20
        while time.time() < deadline:
            pid, status = os.waitpid(self.child, os.WNOHANG)
            if pid:
                self.assertEqual(os.waitstatus_to_exitcode(status), 0)
                return
            time.sleep(0.05)
        self.fail("Ctrl-D did not end the chat")


if __name__ == "__main__":
    unittest.main()
