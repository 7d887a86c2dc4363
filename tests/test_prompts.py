"""What users asked and got leaves with no report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_triage.prompts import PromptFilter

# One line a wording of vLLM, first the oldest; `{}` stands for the text as Python writes it.
WORDINGS = {
    "0.2.7": "INFO 01-01 00:00:00 async_llm_engine.py:379] Received request cmpl-1: prompt: {}, sampling params: SamplingParams(n=1), prompt token ids: [1, 15043].",
    "0.3.3": "INFO 01-01 00:00:00 async_llm_engine.py:436] Received request cmpl-1: prompt: {}, prefix_pos: None,sampling_params: SamplingParams(n=1), prompt_token_ids: [1, 15043], lora_request: None.",
    "0.5.0": "INFO 01-01 00:00:00 async_llm_engine.py:561] Received request cmpl-1: prompt: {}, params: SamplingParams(n=1), prompt_token_ids: [1, 15043], lora_request: None.",
    "0.10.0": "INFO 01-01 00:00:00 [logger.py:41] Received request cmpl-1: prompt: {}, params: SamplingParams(n=1), prompt_token_ids: [1, 15043], prompt_embeds shape: None, lora_request: None.",
    "0.11.2": "DEBUG 01-01 00:00:00 [logger.py:41] Request cmpl-1 details: prompt: {}, prompt_token_ids: [1, 15043], prompt_embeds shape: None.",
    "0.10.2 output": "INFO 01-01 00:00:00 [logger.py:66] Generated response cmpl-1: output: {}, output_token_ids: [1, 15043], finish_reason: stop",
    "0.28.0 ids": "DEBUG 01-01 00:00:00 [request_logger.py:88] Generated response cmpl-1 details: output_token_ids: array('l', [1, 15043])",
}
BODIES = (
    "ValidationError: {{'messages': [{{'role': 'user', 'content': {}}}], 'max_tokens': 5}}",
    "INFO body: ChatMessage(role='user', content={}, name=None)",
    "'input': {}, 'max_tokens': 5",
    "{{'model': 'm', 'prompt': ['a', {}, \"it's\"], 'max_tokens': 5}}",
    "'input': [{}, 'b'], 'max_tokens': 5",
    "  Input should be a valid string [type=string_type, input_value={{'role': 'user', 'text': {}}}, input_type=dict]",
    "  Value error, no such role [type=value_error, input_value={}, input_type=str]",
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=60)


@pytest.mark.parametrize("release", WORDINGS)
@given(text=TEXTS)
def test_a_logged_request_keeps_no_word_of_its_text(release: str, text: str) -> None:
    line = WORDINGS[release].format(repr(f"SECRET{text}SECRET"))
    shown = PromptFilter()(line)

    assert "SECRET" not in shown
    assert "15043" not in shown
    assert shown.partition("cmpl-1")[0] == line.partition("cmpl-1")[0]
    assert ("params: SamplingParams(n=1)" in shown) == ("params: SamplingParams(n=1)" in line)


@pytest.mark.parametrize("body", BODIES)
@given(text=TEXTS, gap=st.sampled_from((" ", "\n", "'s ", "'\t", '" ', ", input_type= ")))
def test_a_quoted_body_keeps_no_word_of_its_text(body: str, text: str, gap: str) -> None:
    shown = PromptFilter()(body.format(repr(f"SECRET{gap}{text}SECRET")))

    assert "SECRET" not in shown
    assert ("'max_tokens': 5" in shown) == ("'max_tokens': 5" in body)
    assert ("input_type=" in shown) == ("input_type=" in body)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (r"x [type=a, input_value=\"it's SECRET\\nSECRET\", input_type=str]", "x [type=a, input_value=[prompt left out], input_type=str]"),
        (r"x [type=a, input_value='it\'s SECRET...d SECRET', input_type=str]", "x [type=a, input_value=[prompt left out], input_type=str]"),
        ("x [type=a, input_value=['tell SECRET'], input_type=list]", "x [type=a, input_value=[prompt left out], input_type=list]"),
        ("x [type=a, input_value='one SECRET", "x [type=a, input_value=[prompt left out]"),
        ("x [type=a, input_value={'method': 'ngram'}, input_type=dict]", "x [type=a, input_value={'method': 'ngram'}, input_type=dict]"),
    ],
)  # fmt: skip
def test_what_a_check_quotes_of_a_request_is_left_out(line: str, shown: str) -> None:
    assert PromptFilter()(line) == shown


def test_tokens_of_a_prompt_are_left_out() -> None:
    for tokens in ("[1, 15043]", "[[1, 15043], [2]]"):
        shown = PromptFilter()(f"{{'prompt': {tokens}, 'n': 1}}")
        assert shown == "{'prompt': [prompt left out], 'n': 1}"


def test_a_request_inside_json_keeps_no_word() -> None:
    line = r'{"log": "{\"role\": \"user\", \"content\": \"SECRET, said\", \"name\": 1}\n"}'

    assert PromptFilter()(line) == r'{"log": "{\"role\": \"user\", \"content\": [prompt left out], \"name\": 1}\n"}'  # fmt: skip


def test_a_prompt_cut_over_several_lines_is_left_out_to_its_end() -> None:
    leave_out = PromptFilter()
    rows = [
        "INFO 01-01 00:00:00 [logger.py:41] Received request 1: prompt: 'SECRET",
        "SECRET ERROR: said",
        "SECRET', params: SamplingParams(n=1)",
        "INFO 01-01 00:00:00 [logger.py:41] Received request 2: prompt: 'SECRET",
        "ERROR 01-01 00:00:01 [core.py:1] died",
        "Traceback (most recent call last):",
    ]

    assert [leave_out(row) for row in rows] == [
        "INFO 01-01 00:00:00 [logger.py:41] Received request 1: prompt: [prompt left out]",
        "[more of a prompt left out]",
        "[prompt left out], params: SamplingParams(n=1)",
        "INFO 01-01 00:00:00 [logger.py:41] Received request 2: prompt: [prompt left out]",
        "ERROR 01-01 00:00:01 [core.py:1] died",
        "Traceback (most recent call last):",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "INFO 01-01 00:00:00 [loggers.py:127] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 5.0 tokens/s",
        "Received request cmpl-1: params: SamplingParams(n=1), lora_request: None.",
        "Request cmpl-1 details: prompt: None, prompt_token_ids: None, prompt_embeds shape: None.",
        "ValueError: The prompt (total length 5000) is too long to fit into the model (context length 4096).",
        "raise ValueError('content length is wrong')",
        "args: {'model': 'org/name', 'response_role': 'assistant', 'chat_template_content_format': 'auto'}",
        "  Input should be 'auto' or 'fp8' [type=literal_error, input_value='fp9', input_type=str]",
        "  Value error, no such file [type=value_error, input_value=ArgsKwargs((), {'model': 'm'}), input_type=ArgsKwargs]",
        "config: {'input_size': [1, 2], 'inputs': ['a']}",
    ],
)
def test_what_holds_no_prompt_stays(line: str) -> None:
    assert PromptFilter()(line) == line
