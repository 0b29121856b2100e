"""Pictures in requests to nano, which has vision: all three protocols, and files that are not what they should be."""
import base64
import os
import struct
import subprocess
import unittest
import zlib

import server as e2e

FOLDER = os.path.join(e2e.SOURCE, "tests/golden/images")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, pixel=b"\xff\x00\x00", rows=None):
    """A picture of one colour; rows: so many of them are there."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = zlib.compress((b"\0" + pixel * width) * (height if rows is None else rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def read(name):
    with open(os.path.join(FOLDER, name), "rb") as f:
        return f.read()


def text_of(data):
    return base64.b64encode(data).decode()


def data_url(data, kind="image/png"):
    return "data:%s;base64,%s" % (kind, text_of(data))


class ImageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = e2e.Server(None)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.end()
        assert code == 0, "exit code %d after SIGTERM: %s" % (code, "".join(cls.server.lines))

    def ask(self, url, text="What is this?", **more):
        blocks = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
        return self.server.post("/v1/chat/completions", {"model": "nano", "messages": [{"role": "user", "content": blocks}], "temperature": 0, "max_tokens": 12,
                                                         "logprobs": True, "thinking": {"type": "disabled"}, **more})

    def metric(self, name):
        return next(float(line.split()[-1]) for line in self.server.get("/metrics")[1].splitlines() if line.startswith("deepinfer_" + name))

    def test_the_protocols_read_the_same(self):
        picture = text_of(png(126, 126))
        _, chat = self.ask("data:image/png;base64," + picture)
        self.assertEqual(chat["choices"][0]["finish_reason"] in ("stop", "length"), True, chat)
        # 126 x 126 pixels are 3 x 3 positions: a start, three rows with an end each, an end.
        _, text = self.server.post("/v1/chat/completions", {"model": "nano", "messages": [{"role": "user", "content": "\n\nWhat is this?"}], "max_tokens": 1,
                                                            "thinking": {"type": "disabled"}})
        self.assertEqual(chat["usage"]["prompt_tokens"], text["usage"]["prompt_tokens"] + 3 * 4 + 2)
        source = {"type": "base64", "media_type": "image/png", "data": picture}
        body = {"model": "nano", "max_tokens": 12, "temperature": 0, "thinking": {"type": "disabled"},
                "messages": [{"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]}]}
        _, message = self.server.post("/v1/messages", body)
        _, count = self.server.post("/v1/messages/count_tokens", body)
        _, response = self.server.post("/v1/responses", {"model": "nano", "max_output_tokens": 12, "temperature": 0, "reasoning": {"effort": "none"}, "input": [
            {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64," + picture}, {"type": "input_text", "text": "What is this?"}]}]})
        answer = chat["choices"][0]["message"]["content"]
        self.assertEqual(message["content"][0]["text"], answer)
        self.assertEqual(response["output"][-1]["content"][0]["text"], answer)
        self.assertEqual(count["input_tokens"], chat["usage"]["prompt_tokens"])
        self.assertEqual(response["usage"]["input_tokens"], chat["usage"]["prompt_tokens"])

    def test_other_pictures_are_other_prompts(self):
        question = "What is this? " + "Tell me all about it. " * 40
        _, red = self.ask(data_url(png(126, 126)), question)
        before = self.metric("images_encoded_total")
        _, again = self.ask(data_url(png(126, 126)), question)
        self.assertEqual(self.metric("images_encoded_total"), before)
        self.assertGreater(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        _, blue = self.ask(data_url(png(126, 126, b"\x00\x00\xff")), question)
        self.assertEqual(blue["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertNotEqual(blue["choices"][0]["logprobs"], red["choices"][0]["logprobs"])

    def test_files_of_all_kinds(self):
        for name, kind in (("rgb.png", "image/png"), ("baseline.jpg", "image/jpeg"), ("ink.jpg", "image/jpeg"), ("progressive.jpg", "image/png"), ("lossy.webp", "image/webp"),
                           ("moving.webp", "image/webp"), ("frames.gif", "image/gif"), ("palette.png", "image/png")):
            with self.subTest(name):
                status, answer = self.ask(data_url(read(name), kind))
                self.assertEqual(status, 200, answer)

    def test_bad_files_are_refused_and_compute_nothing(self):
        before = self.metric("engine_requests_total")
        whole = text_of(png(20, 20))
        gif = read("frames.gif")
        cases = (("cut base64", "data:image/png;base64," + whole[:41]), ("no base64", "data:image/png;base64,%%%%"), ("nothing", "data:image/png;base64,"),
                 ("no type", "data:;base64," + whole), ("other type", "data:text/html;base64," + whole), ("text", data_url(b"hello")),
                 ("half a file", data_url(png(200, 200)[:60])), ("half the rows", data_url(png(200, 200, rows=100))), ("bomb", data_url(png(60000, 60000, rows=1))),
                 ("no pixels", data_url(png(0, 0))), ("no width", data_url(png(0, 5))), ("huge", data_url(png(2**31 - 1, 1, rows=0))), ("half a gif", data_url(gif[:30], "image/gif")),
                 ("a url", "https://example.com/a.png"))
        for name, url in cases:
            with self.subTest(name):
                status, answer = self.ask(url)
                self.assertEqual(status, 400, answer)
                self.assertTrue(answer["error"]["param"].startswith("messages[0].content[0]"), answer)
                self.assertIn("messages[0].content[0]", answer["error"]["message"])
        self.assertEqual(self.metric("engine_requests_total"), before)
        self.assertLess(self.server.resident_bytes(), 1 << 30)


class ImageCommandTest(unittest.TestCase):
    def test_run_shows_a_picture(self):
        picture = os.path.join(FOLDER, "rgb.png")
        with_it = e2e.run("run", "--image", picture, e2e.NANO, "What is this?", "--temperature", "0", "--max-tokens", "8", "--kv-memory", "64MiB")
        self.assertEqual(with_it.returncode, 0, with_it.stderr)
        absent = e2e.run("run", "--image", "/nowhere.png", e2e.NANO, "What is this?", "--kv-memory", "64MiB")
        self.assertNotEqual(absent.returncode, 0)
        self.assertIn("/nowhere.png", absent.stderr)
        blind = e2e.run("run", e2e.TINY, "What is this?", "--image", picture, "--kv-memory", "64MiB")
        self.assertNotEqual(blind.returncode, 0)
        self.assertIn("text only", blind.stderr)


if __name__ == "__main__":
    unittest.main()
