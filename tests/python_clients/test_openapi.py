"""The server against its own description: schemathesis sends what the document allows and what it forbids."""
import os
import subprocess
import sys

# Left out: positive_data_acceptance, since rules between members (results follow their calls, a prompt fits the context) cannot be said
# in a schema; the document says so, too.
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance", "negative_data_rejection",
          "unsupported_method", "ignored_auth", "use_after_free"]


def test_document(request, model, scripted, tmp_path):
    from conftest import Live

    key = "schemathesis"
    live = Live(request.config.getoption("--server-command") + " --keep --key " + key)
    try:
        config = tmp_path / "schemathesis.toml"
        config.write_text("")
        command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "--config-file", str(config), "run", live.url + "/openapi.json",
                   "--checks", ",".join(CHECKS), "--max-examples", os.environ.get("DEEPINFER_OPENAPI_EXAMPLES", "25"), "--seed", "1", "--generation-deterministic",
                   "-H", "Authorization: Bearer " + key, "--request-timeout", "30", "--suppress-health-check", "all", "--no-color"]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path)
        assert result.returncode == 0, result.stdout
    finally:
        live.stop()
