"""Secrets out, look-alikes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_triage.redact import redact

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@given(st.text(ALPHABET, min_size=20, max_size=40))
def test_no_token_gets_through(secret: str) -> None:
    for text in (
        f"hf_{secret}", f"sk-{secret}", f"Authorization: Bearer {secret}", f"--api-key {secret} --port 1",
        f"'api_key': '{secret}'", f'"hf_token": "{secret}"', f"AWS_SECRET_ACCESS_KEY={secret}",
        f"https://user:{secret}@hub.example/x", f"'api_key': ['{secret}']", f"--hf-token={secret}",
    ):  # fmt: skip
        assert secret not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=128, tokenizer='meta-llama/Llama-3', num_tokens: 5",
        "chatcmpl-5c1f941a95c97033f0ddbc21bafbf6c4",
        "commit 157ae4706f3c9e2a",
        "api_key=None",
        "Avg prompt throughput: 13.0 tokens/s",
        "you do not have a token; log in",
    ],
)
def test_look_alikes_stay(text: str) -> None:
    assert redact(text) == text


def test_the_name_of_what_held_it_stays() -> None:
    assert redact("--api-key abc123xyz --port 80") == "--api-key [redacted] --port 80"
