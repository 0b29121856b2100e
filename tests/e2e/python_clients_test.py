"""The official clients against the real server: the suite of tests/python_clients, less what only the scripted model can be asked."""
import os
import subprocess
import unittest

import server as e2e

SUITE = os.path.join(e2e.SOURCE, "tests/python_clients/run")


def run_suite(case, model):
    command = [SUITE, os.environ["DEEPINFER_CLIENT_CACHE"], e2e.BINARY, "serve", model, "--port", "0", "--threads", "1", "--kv-memory", "64MiB"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode == 77:
        case.skipTest(result.stdout.strip().splitlines()[-1])
    case.assertEqual(result.returncode, 0, result.stdout)


class ClientOfTinyModelTest(unittest.TestCase):
    def test_suite(self):
        run_suite(self, e2e.TINY)


class ClientOfNanoTest(unittest.TestCase):
    def test_suite(self):
        run_suite(self, e2e.NANO)


class ClientOfRealModelTest(unittest.TestCase):
    @e2e.needs(e2e.SMOLLM2)
    def test_suite(self):
        run_suite(self, e2e.SMOLLM2)


if __name__ == "__main__":
    unittest.main()
