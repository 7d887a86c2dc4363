"""Named secrets: what stands behind the name of a secret, in any notation, out of a text."""

import regex

from vllm_triage.expressions import expression
from vllm_triage.secret_names import BARE, is_secret

REDACTED = "[redacted]"

# A name with what may make it a secret's, and what stands between a name and its value.
_NAME = expression(
    r"(?i)(?<![\w.-])-{0,2}(?=[\w.-]{0,200}?(?:key|token|pass|pwd|secret|cred|auth|cookie|jwt))[\w.-]{1,200}+"
)
_EQUALS = expression(
    r"(?:\\{0,3}['\"])?\]?\s{0,3}(?::=|=>|->|==?|:|%3[DdAa])\s{0,30}"
    # {"name": "HF_TOKEN", "value": "X"}, as manifests have it.
    r"|\\{0,3}['\"]?\s{0,9},\s{0,9}\\{0,3}['\"]?(?i:value)\\{0,3}['\"]?\s{0,3}[:=]\s{0,3}"
)
# A cell of a table, a pair of texts.
_OF_VARIABLE = expression(
    r"\s{0,40}[│┃|]\s{0,9}(?=[^\s│┃|])|\\{0,3}['\"],\s{0,3}(?=b?\\{0,3}['\"])"
)
_IS_PAIR = expression(r"(?:\(b?|b)['\"]$")
_SET = expression(r"\s{1,9}")
_IS_SET = expression(r"(?:^|[\s'\"])(?:ENV|setenv|setx)\s{1,9}$")
_OF_FLAG = expression(r"\\{0,3}['\"]?(?:=|,\s{0,3}|[ \t]{1,9})")
# Another flag, or what a sentence says of this one.
_NO_FLAG_VALUE = expression(
    r"b?['\"]?-|(?:is|was|or|and|to|for|flag|flags|option|argument|must|with|in|has|requires|not|the|if|when|should|can|cannot|from|as|expected|set)\b(?![-+/=.\w])"
)
# What a name can hold that is no secret: nothing, a variable, a special token, an attribute in a source line.
_NO_SECRET = expression(
    r"b?\\{0,3}['\"]?(?:(?:None|null|true|false|True|False|EMPTY|str|Optional|Union)(?![\w.+/=-])|\[?redacted|\*\*"
    r"|\[?<(?:[/|]|s>|[a-z_-]{1,30}[> ])"
    r"|\$(?:\{\w{1,100}\}|\((?:\w{1,100}\)|cat )|[A-Z_][A-Z0-9_]*(?=[\s'\"\\]|$)|[a-z_]+(?=[\s'\"\\]|$))"
    r"|(?:self|args|os|kwargs|config|settings)\.[a-z])"
)
# Of a bare word a comma is a part where what follows is no pair of a name and a value.
COMMA = r"[,;](?=[^\s'\",;=:&)}\]\\]{1,200}(?:[\s'\",;)}\]\\]|$))"
# A list, a quoted text (its quotes escaped where it stands in another), a bare word.
_VALUE = expression(
    r"(?:(?P<list>\[)[^\]\n]{0,2000}\]?"
    r"|[brufBRUF]{0,2}(?P<quote>['\"])(?:\\[^\n]|(?!(?P=quote))[^\n\\]){3,4000}+(?P=quote)?(?:\\['\"]['\"]?[^'\"\n]{0,500}['\"]?)?"
    r"|[brufBRUF]{0,2}(?P<quote>\\{1,3}['\"])(?:\\{3}['\"]|(?!\\{1,3}['\"])[^\n]){3,4000}+(?:(?P=quote))?"
    rf"|(?:[^\s'\",;&)}}\]\0]|{COMMA}){{3,}}+)"
)
_CONSTANT = expression(r"[A-Za-z]{1,20}(?:_[A-Za-z]{1,20}){1,6}|[A-Z]{2,12}")
_NUMBER = expression(r"['\"]?-?\d{1,9}(?:\.\d{1,9})?(?![\w.+/=@-])")
_SHELL_WORD = {
    "": expression(r"(?!['\"\[\\])[^\s\0]{3,4000}"),
    "'": expression(r"(?!['\"\[\\])[^\s\0']{3,4000}"),
    '"': expression(r"(?!['\"\[\\])[^\s\0\"]{3,4000}"),
    "'\"": expression(r"(?!['\"\[\\])[^\s\0'\"]{3,4000}"),
}


_NEXT_PAIR = expression(
    r"(?<![,;&])[,;&]++['\"]?[A-Za-z_][\w.-]{0,60}['\"]?[=:]|(?<![,;)}\]'\"])[,;)}\]'\"]++$|\\[nrt]?['\"]|\\n"
)


def without_named(text: str) -> str:
    """Replace what stands behind the name of a secret."""
    out, done, at = [], 0, 0
    while (name := _NAME.search(text, at)) is not None:
        at = name.end()
        value = _value(text, name)
        if value is not None:
            start, end, shown = value
            out += [text[done:start], shown]
            done = at = end
    return "".join(out) + text[done:] if out else text


def _value(text: str, name: "regex.Match[str]") -> tuple[int, int, str] | None:
    """Where the secret of this name stands, and what is shown in its place."""
    word = name[0]
    if text[name.start() - 1 : name.start()] == "\\" and word[0] in "nrt":
        # The end of an escaped line.
        word = word[1:]
    is_bare = word in BARE and text[name.end() : name.end() + 1] == "="
    if not (is_bare or is_secret(word)):
        return None
    between = _separator(text, name, word)
    if between is None or _NO_SECRET.match(text, between.end()):
        return None
    start = between.end()
    is_variable = word.upper() == word and not word.startswith("-")
    found = _shell_word(text, name, start) if is_variable and between[0] == "=" else None
    found = found or _VALUE.match(text, start)
    if found is None or _is_none(found[0].strip("b'\"[]()\\.,"), word, between[0]):
        return None
    if "token" in word.lower() and _NUMBER.match(text, start):
        return None
    quote = found.groupdict().get("quote") or ""
    return start, found.end(), f"{quote}{REDACTED}{quote}"


def _separator(text: str, name: "regex.Match[str]", word: str) -> "regex.Match[str] | None":
    """What stands between a name and its value; None where it has none."""
    end = name.end()
    if word.startswith("-"):
        before = text[name.start() - 1 : name.start()] if name.start() else ""
        found = None if before.strip(" \t'\"[(,=`") else _OF_FLAG.match(text, end)
        if found is None or _NO_FLAG_VALUE.match(text, found.end()):
            return None
        return found
    found = _EQUALS.match(text, end)
    is_variable = word.upper() == word
    if found is None and (is_variable or _IS_PAIR.search(text, 0, name.start())):
        found = _OF_VARIABLE.match(text, end)
    if found is None and is_variable and _IS_SET.search(text, 0, name.start()):
        found = _SET.match(text, end)
    return found


def _is_none(said: str, word: str, between: str) -> bool:
    """Tell what is no secret though it stands in its place."""
    same = said.replace("_", "-").lower()
    own = word.lower().replace("_", "-")
    if same in (own, own.lstrip("-")):
        # api_key=api_key in a source line, --api-key API_KEY in a help text.
        return True
    if word in BARE and (len(said) < 6 or said == "VALUE"):
        return True
    # A list of names.
    is_name = _CONSTANT.fullmatch(said) is not None
    return is_name and between.rstrip().endswith(",") and not word.startswith("-")


def _shell_word(text: str, name: "regex.Match[str]", start: int) -> "regex.Match[str] | None":
    """The value of a variable as a shell takes it, up to the quote in which it stands or a comma before the next pair."""
    before = text[: name.start()]
    if not before or before[-1].isspace():
        is_open = "".join(quote for quote in "'\"" if before.count(quote) % 2)
    elif before[-1] in "'\"":
        is_open = before[-1]
    else:
        return None
    found = _SHELL_WORD[is_open].match(text, start)
    if found is None:
        return None
    ended = _NEXT_PAIR.search(found[0])
    return (
        found if ended is None else _SHELL_WORD[is_open].match(text, start, start + ended.start())
    )
