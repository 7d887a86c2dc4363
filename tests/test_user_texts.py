"""What users asked and models answered is never evidence, however a log, a client or a shell shows it."""

import pytest

from vllm_triage import triage

SAID = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.33 GiB of which 1.00 GiB is free."
SHOWN = {
    "completion": '{"id":"cmpl-1","object":"text_completion","model":"m","choices":[{"index":0,"text":"TEXT"}]}',
    "chat": '{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"TEXT"}}]}',
    "reasoning": '{"id":"chatcmpl-1","choices":[{"index":0,"message":{"role":"assistant","reasoning_content":"TEXT","content":null}}]}',
    "stream": 'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"TEXT"}}]}',
    "request": '{"model": "m", "prompt": "TEXT", "max_tokens": 16}',
    "prompts": '{"model": "m", "prompt": ["hello", "TEXT"], "max_tokens": 16}',
    "messages": '{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "TEXT"}]}]}',
    "body": "INFO 12-01 10:00:00 [x.py:1] body: {'model': 'm', 'input': 'TEXT'}",
    "prompt of a client": "request: {'model': 'm', 'prompt': 'TEXT'}",
    "embedding": '{"model": "m", "input": "TEXT"}',
    "curl": """curl http://localhost:8000/v1/completions -d '{"model": "m", "prompt": "TEXT"}'""",
    "client": "Completion(id='cmpl-1', choices=[CompletionChoice(finish_reason='length', index=0, logprobs=None, text='TEXT')])",
    "chat client": "ChatCompletion(id='chatcmpl-1', choices=[Choice(index=0, message=ChatCompletionMessage(content='TEXT', role='assistant'))])",
    "example": "Prompt: 'hi', Generated text: ' TEXT'",
    "example's prompt": "Prompt: 'TEXT', Generated text: ' yes'",
    "offline": "RequestOutput(request_id=0, prompt='TEXT', prompt_token_ids=[1], outputs=[CompletionOutput(index=0, text='TEXT')])",
    "cut short": '{"model": "m", "prompt": "TEXT',
}


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_what_was_asked_or_answered_is_no_incident(shown: str) -> None:
    report = triage(["INFO 12-01 10:00:00 [x.py:1] here", shown.replace("TEXT", SAID)])

    assert report.incidents == ()


@pytest.mark.parametrize(
    "shown",
    [
        '{"error":{"message":"TEXT","type":"InternalServerError","code":500}}',
        '{"level":"ERROR","text":"TEXT"}',
        "prompt_len=12 TEXT",
        "TEXT",
    ],
)
def test_what_the_server_said_is_one(shown: str) -> None:
    report = triage(["INFO 12-01 10:00:00 [x.py:1] here", shown.replace("TEXT", SAID)])

    assert [one.area for one in report.incidents] == ["oom"]
