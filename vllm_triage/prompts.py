"""Prompts: what users asked and got, out of the lines that log requests."""

from typing import TYPE_CHECKING

from vllm_triage.expressions import expression

if TYPE_CHECKING:
    import regex

LEFT_OUT = "[prompt left out]"
_LEFT_OUT_LINE = "[more of a prompt left out]"
# `%r` of the text: a quote inside is escaped. One that does not end goes on in the next line.
_LITERAL = r"(?:'(?:[^'\\]|\\.)*+(?P<end>')?|\"(?:[^\"\\]|\\.)*+(?P<end>\")?)"
_TRIGGERS = ("rompt", "output", "content", "generated_text", "input")
# vLLM's own: `Received request`, `Request X details`, `Generated response`, every release's words.
_OF_REQUEST = expression(rf"(?<=\b(?:prompt|output): ){_LITERAL}")
_UNQUOTED = expression(
    r"(?<=\bprompt: )(?!None|\[prompt)[^'\"\n](?:.*(?=, (?:sampling )?params: |, prompt_token_ids: |, prefix_pos: )|.*)"
)
_IDS = expression(r"(?<=token[_ ]ids: )(?:array\('\w', )?[\[(][^\])\n]*+[\])]?\)?")
# The bodies of requests and answers, as errors and debugging output quote them.
_OF_BODY = expression(
    rf"(?<![\w.])(?:(?P<key>\\{{0,3}}['\"])(?:prompt|content|generated_text|output_text|input)(?P=key) ?: ?|(?:prompt|content|generated_text)=)"
    rf"(?:\\{{1,3}}(?P<quote>['\"])(?:(?!\\{{1,3}}(?P=quote)).)*+\\{{0,3}}(?P=quote)?|{_LITERAL})"
)
# Several texts, or tokens, of one request.
_OF_LIST = expression(
    rf"(?<![\w.])((?P<key>['\"])(?:prompt|input|content)(?P=key) ?: ?|(?:prompt|content)=)\[(?:\s*+(?:{_LITERAL}|\d++|\[[\d,\s]*+\]),?+)++\s*+\]?"
)
# What pydantic quotes of a request, cut to some 50 characters; a configuration's value is one word.
_CHECKED = r", input_type=\w+[,\]]"
_OF_CHECK = expression(
    rf"(?<=\binput_value=)(?=[\[{{(\\'\"])(?:{_LITERAL}(?={_CHECKED})|(?:(?!{_CHECKED})[^\n])*+)"
)
_MESSAGES = ("messages", "prompt", "content", "'role'", "'text'")
_PROSE = expression(r"\s|\\[nrt]")
_TEXT = expression(_LITERAL)
_VALUE = expression(r"[:=] ?\\{0,3}['\"]")
_REQUESTS = ("Received request ", "Generated response ", " details: prompt")
# Where a record of its own begins.
_RECORD = expression(
    r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d |^[^a-z]{0,60}(?:INFO|WARNING|ERROR): {4,6}\S"
)
_GOES_ON = (
    "', params: ",
    '", params: ',
    "', sampling params: ",
    "', prompt_token_ids: ",
    "', prefix_pos: ",
)


class PromptFilter:
    """Leaves the users' texts out of the lines of one log."""

    def __init__(self) -> None:
        self._is_open = False

    def __call__(self, line: str) -> str:
        """The line without prompts and answers."""
        if self._is_open:
            ended = next((end for end in _GOES_ON if end in line), None)
            if ended is not None:
                self._is_open = False
                return LEFT_OUT + line[line.index(ended) + 1 :]
            if _RECORD.search(line) is None:
                return _LEFT_OUT_LINE
            self._is_open = False
        if not any(word in line for word in _TRIGGERS):
            return line
        if any(words in line for words in _REQUESTS):
            self._is_open = any(one["end"] is None for one in _OF_REQUEST.finditer(line))
            line = _IDS.sub("[left out]", _UNQUOTED.sub(LEFT_OUT, _OF_REQUEST.sub(LEFT_OUT, line)))
        line = _OF_CHECK.sub(_checked, _OF_LIST.sub(rf"\1{LEFT_OUT}", line))
        return _OF_BODY.sub(_emptied, line)


def _emptied(found: "regex.Match[str]") -> str:
    start = _VALUE.search(found[0])
    kept = found[0][: start.end() - 1] if start else ""
    return f"{kept.rstrip(chr(92))}{LEFT_OUT}"


def _checked(found: "regex.Match[str]") -> str:
    value = found[0]
    is_message = value[0] in "[{(" and any(word in value for word in _MESSAGES)
    is_prose = is_message or any(_PROSE.search(one[0]) for one in _TEXT.finditer(value))
    return LEFT_OUT if is_prose else value
