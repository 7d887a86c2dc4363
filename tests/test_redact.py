"""Secrets out, look-alikes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_triage.redact import Redactor, redact

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@given(st.text(ALPHABET, min_size=20, max_size=40))
def test_no_token_gets_through(secret: str) -> None:
    for text in (
        f"hf_{secret}", f"sk-{secret}", f"Authorization: Bearer {secret}", f"--api-key {secret} --port 1",
        f"'api_key': '{secret}'", f'"hf_token": "{secret}"', f"AWS_SECRET_ACCESS_KEY={secret}",
        f"https://user:{secret}@hub.example/x", f"'api_key': ['{secret}']", f"--hf-token={secret}",
    ):  # fmt: skip
        assert secret not in redact(text)


SECRETS = st.text(ALPHABET, min_size=20, max_size=40).filter(lambda text: not text.isdecimal())

# `§` stands for the secret. Each line is one way in which a secret gets into a log, a command or a variable.
PLACES = (
    "hf_§", "file-hf_§.log", "api_org_§", "sk-§", "sk-ant-api03-§", "nvapi-§", "ghp_§", "github_pat_§", "glpat-§",
    "xoxb-§", "AIzaSyAAAAAAAAAA§", "ya29.§", "gsk_§", "dckr_pat_§", "pypi-§", "npm_§", "eyJ§.§.§",
    "Authorization: Bearer §", "authorization: basic §==", "Authorization: Token §", "'Authorization': 'Bearer §'", "authorization=§",
    "(b'authorization', b'Bearer §')", "(b'x-api-key', b'§')", "X-API-Key: §", '-H "Authorization: Bearer §"',
    "Cookie: session=§; id=§", "Set-Cookie: session=§; Path=/", "(b'cookie', b'session=§')",
    "--api-key § --port 1", "--api-key=§", "--api-key § x§ --port 1", "--api-key § x§", "--api_key '§'", "--hf-token=§", "--token §",
    "--api-key=§,x§ --port 1", "SOME_API_KEY=§,x§", '{"log":"vllm serve m --api-key § x§\\n","stream":"stderr"}',
    "--proxy-password §", "--ssl-keyfile-password §", '"--api-key", "§", "--port"', "['--hf-token', '§', '--port']",
    "'api_key': '§'", "'api_key': ['§', 'x§']", "api_key=['§', 'x§'], port=1", '"hf_token": "§"', '{\\"api_key\\": \\"§\\"}',
    '{"name": "HF_TOKEN", "value": "§"}', "AWS_SECRET_ACCESS_KEY=§", "aws_session_token = §", "-e HF_TOKEN=§ x", "VLLM_SOME_KEY=§",
    "VLLM_SOME_TOKEN=§", "DB_PASSWORD='a §'", 'DB_PASSWORD="§, §"', "PGPASSWORD=§", "MYSQL_PWD=§", "DB_PASS=§", "CLIENT_SECRET=§", "client_secret: §",
    "private_key: §", "AccountKey=§;EndpointSuffix=x", "HF_TOKEN:      §",
    "https://user:§@hub.example/x", "https://user:a@§@hub.example/x", "redis://:§@host:1/0", "https://§@hub.example/x", "http_proxy=http://u:§@proxy:3128",
    "https://cdn.example/x?Policy=§&Signature=§&Key-Pair-Id=§", "https://b.example/x?sig=§", "https://b.example/x?a=1&X-Amz-Signature=§",
    "https://hooks.slack.com/services/T0/B0/§", "curl -u bob:§ http://x", "curl --proxy-user bob:§ http://x", "machine hub.example login bob password §",
    "-----BEGIN PRIVATE KEY-----\\n§\\n-----END PRIVATE KEY-----",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@given(secret=SECRETS)
def test_a_secret_gets_through_nowhere(place: str, secret: str) -> None:
    shown = redact(f"INFO 12-01 10:00:00 [x.py:1] {place.replace('§', secret)}")

    assert secret not in shown
    assert redact(shown) == shown


@given(SECRETS)
def test_a_secret_on_another_line_than_its_name_gets_through_nowhere(secret: str) -> None:
    rows = [
        "-----BEGIN RSA PRIVATE KEY-----", secret, f"INFO 12-01 {secret}", "-----END RSA PRIVATE KEY-----", "after the key",
        "- name: HF_TOKEN", f"  value: {secret}", '"name": "MY_API_KEY",', f'"value": "{secret}"', "- --api-key", f"- {secret}",
        "- --port", "- 80", '"--hf-token",', f'"{secret}",', "vllm serve m --api-key \\", f"  {secret} \\", "  --port 1", "last",
    ]  # fmt: skip
    redactor = Redactor()
    shown = [redactor(row) for row in rows]

    assert not any(secret in row for row in shown)
    assert shown[4] == "after the key"
    assert shown[11:13] == ["- --port", "- 80"]
    assert shown[17:] == ["  --port 1", "last"]


def test_a_key_without_an_end_does_not_hide_the_rest() -> None:
    redactor = Redactor()
    shown = [redactor(row) for row in ("-----BEGIN PRIVATE KEY-----", *["x"] * 400, "seen again")]

    assert shown[-2:] == ["[redacted]", "seen again"]


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=128, tokenizer='meta-llama/Llama-3', num_tokens: 5",
        "chatcmpl-5c1f941a95c97033f0ddbc21bafbf6c4",
        "commit 157ae4706f3c9e2a",
        "api_key=None",
        "Avg prompt throughput: 13.0 tokens/s",
        "you do not have a token; log in",
        "HF_TOKEN:  <set to the key 'token' in secret 'hf'>  Optional: false",
        "bos_token='<s>', eos_token=\"</s>\"",
        "--hf-token --port 80",
        "one of 'int8_per_token', 'nvfp4_per_token', 'fp8'",
        "---------------Inter-token Latency----------------",
        "usage: vllm serve ['--api-key', '--hf-token', '--port']",
        "-e HF_TOKEN=$HF_TOKEN -p 80",
        "docker run -u 1000:1000 --user 0:0 x",
        "Unexpected token: '}'",
        "secret 'hf' not found",
        "cache_key: 1f2e3d4c5b6a, forward_pass: 3.2 ms",
        "ssh://git@host/x git@github.com:a/b https://huggingface.co/org/name/resolve/main/config.json",
        "import vllm.hf_transformers_patch from hf_overrides",
        "def load(token: str | None = None, api_key=self.api_key)",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B at 3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a",
    ],
)
def test_look_alikes_stay(text: str) -> None:
    assert redact(text) == text


def test_the_name_of_what_held_it_stays() -> None:
    assert redact("--api-key abc123xyz --port 80") == "--api-key [redacted] --port 80"
    assert redact("vllm serve --api-key abc123xyz meta-llama/Llama-3 --port 80") == (
        "vllm serve --api-key [redacted] meta-llama/Llama-3 --port 80"
    )
    assert redact("--api-key one --api-key two") == "--api-key [redacted] --api-key [redacted]"
