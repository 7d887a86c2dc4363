"""Secrets out of everything that leaves."""

import regex

from vllm_triage.expressions import expression

REDACTED = "[redacted]"

# One cheap look decides for most texts that nothing is to be done.
_TRIGGER = expression(
    r"hf_|sk-|api_org_|nvapi-|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|eyJ|AKIA|ASIA|AIza|ya29\.|gsk_|dckr_|pypi-|npm_"
    r"|://|hooks\.slack|bearer|basic |authorization|cookie|key|token|passw|passphrase|secret|credential|_pass|_pwd"
    r"|sig=|signature=|policy=|X-Amz-|-u |--user|--proxy-user",
    regex.IGNORECASE,
)
# Tokens that are known by how they begin.
_SHAPES = (
    r"hf_(?:[A-Za-z0-9]{20,}|(?=[a-z]{0,20}[A-Z0-9])[A-Za-z0-9]{10,})",
    r"api_org_[A-Za-z0-9]{16,}",
    r"sk-[A-Za-z0-9_-]{12,}",
    r"nvapi-[A-Za-z0-9_-]{16,}",
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"glpat-[A-Za-z0-9_-]{16,}",
    r"xox[a-z]-[A-Za-z0-9-]{10,}",
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"ya29\.[A-Za-z0-9_-]{20,}",
    r"gsk_[A-Za-z0-9]{20,}",
    r"dckr_[a-z]{3}_[A-Za-z0-9_-]{16,}",
    r"pypi-[A-Za-z0-9_-]{20,}",
    r"npm_[A-Za-z0-9]{20,}",
)
_NAMES = (
    r"api[_-]?key|hf[_-]?token|hub[_-]?token|access[_-]?key|auth[_-]?token|access[_-]?token|(?<![a-z])token"
    r"|secret(?:[_-]?(?:access[_-]?)?key)?|passw(?:or)?d|passphrase|credentials?"
    r"|(?:private|encryption|signing|session|account|master|webhook|license|storage)[_-]?key"
    r"|(?-i:(?<=[A-Z0-9])_(?:KEY|PASS|PWD|AUTH|CREDS))"
)
# What a name can hold that is no secret: nothing, a variable, a special token, an attribute in a source line.
_NO_SECRET = (
    r"(?!b?\\{0,3}['\"]?(?:(?:None|null|true|false|EMPTY|str|Optional|Union)(?![\w.+/=-])|\[?redacted|\*\*|<"
    r"|\$\{?\w+\}?(?=[\s'\"]|$)|(?:self|args|os|kwargs|config|settings)\.[a-z]))"
)
# Of a bare word a comma is a part where what follows is no pair of a name and a value.
_COMMA = r"[,;](?=[^\s'\",;=:&)}\]\\]{1,200}(?:[\s'\",;)}\]\\]|$))"
# A list, a quoted text (its quotes escaped where it stands in another), a bare word.
_VALUE = (
    r"(?:(?P<list>\[)[^\]\n]{0,2000}\]?|b?(?P<quote>\\{0,3}['\"])(?:(?!(?P=quote))[^\n]){3,2000}+(?P=quote)?"
    rf"|(?:[^\s'\",;&)}}\]]|{_COMMA}){{3,}}+)"
)
_SEPARATOR = r"(?:\\{0,3}['\"])?\s{0,3}[=:]\s{0,30}"
_FLAG_NAMES = r"api[-_]key|token|passw(?:or)?d|passphrase|secret|access[-_]key|secret[-_]key"
_WORD = rf"(?:'[^'\n]{{0,500}}'?|\"[^\"\n]{{0,500}}\"?|(?:[^\s'\",;\\]|{_COMMA}){{1,500}})"
_RULES: tuple[tuple[regex.Pattern[str], str], ...] = (
    (
        expression(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|$)",
            regex.DOTALL,
        ),
        REDACTED,
    ),
    (expression(rf"(?<![A-Za-z0-9])(?:{'|'.join(_SHAPES)})"), REDACTED),
    (expression(r"(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {REDACTED}"),
    (
        expression(
            r"(?i)(authorization\\{0,3}['\"]?\s{0,3}[,:=]\s{0,3}b?\\{0,3}['\"]?(?:(?:token|digest|negotiate|api-?key) +)?)"
            r"(?!bearer |basic )[^\s'\",)]{6,}"
        ),
        rf"\1{REDACTED}",
    ),
    (
        expression(
            r"(?i)(\b(?:set-)?cookie\\{0,3}['\"]?\s{0,3}[:,=]\s{0,3}b?\\{0,3}['\"]?)[^\s'\"][^'\"\n]{2,4000}"
        ),
        rf"\1{REDACTED}",
    ),
    (
        expression(
            r"(?i)([?&](?:X-Amz-(?:Signature|Credential|Security-Token)|X-Goog-(?:Signature|Credential)|sig|signature|policy"
            r"|key|token|key-pair-id|AWSAccessKeyId|code|auth)=)[^&\s\"'\\]{3,}"
        ),
        rf"\1{REDACTED}",
    ),
    (expression(r"(?i)(hooks\.slack\.com/services/)[\w/]{8,}"), rf"\1{REDACTED}"),
    # The password can hold an @ itself.
    (
        expression(r"(?i)(?<=[a-z0-9+.-]://)[^\s/:@'\"]{0,100}:[^\s/'\"]{1,200}@"),
        f"{REDACTED}@",
    ),
    (expression(r"(?i)(?<=[a-z0-9+.-]://)[^\s/:@'\"]{16,200}@"), f"{REDACTED}@"),
    (
        expression(r"(?i)(\blogin\s{1,9}\S{1,100}\s{1,9}password\s{1,9})\S{1,200}"),
        rf"\1{REDACTED}",
    ),
    (
        expression(
            r"((?:^|\s)(?:-u|--(?:proxy-)?user)[= ]{1,9}['\"]?(?!\d{1,9}:\d)[^\s:'\"/]{1,100}:)[^\s'\"]{1,200}"
        ),
        rf"\1{REDACTED}",
    ),
    # {"name": "HF_TOKEN", "value": "X"}, as manifests have it.
    (
        expression(
            rf"(?i)((?:{_NAMES})\\{{0,3}}['\"]?\s{{0,9}},\s{{0,9}}\\{{0,3}}['\"]?value\\{{0,3}}['\"]?\s{{0,3}}[:=]\s{{0,3}}){_NO_SECRET}{_VALUE}"
        ),
        rf"\1\g<quote>{REDACTED}\g<quote>",
    ),
    # A header of a request as a pair of bytes, a flag and its value in a list: ["--token", "X"].
    (
        expression(
            rf"(?i)((?:(?<!-)--(?=[a-z])|b['\"])[\w-]{{0,40}}?(?:{_FLAG_NAMES})['\"],\s{{0,3}})(?=b?['\"])(?!['\"]--){_NO_SECRET}{_VALUE}"
        ),
        rf"\1\g<quote>{REDACTED}\g<quote>",
    ),
    # --api-key X, api_key='X', "hf_token": ["X", "Y"], AWS_SECRET_ACCESS_KEY=X;
    # never max_tokens=128 or tokenizer=...
    (
        expression(rf"(?i)((?:{_NAMES}){_SEPARATOR}){_NO_SECRET}{_VALUE}"),
        rf"\1\g<quote>{REDACTED}\g<quote>",
    ),
)
_FLAG = rf"(?i)((?<!-)--(?=[a-z])[\w-]{{0,40}}?(?:{_FLAG_NAMES})(?:=| {{1,9}}))(?!'?\[redacted\]|['\"]?\$|-|<)"
# The server takes several keys: all words up to the next flag, of which a model may be one.
_KEYS = expression(
    rf"(?i)(--api[-_]key(?:=| {{1,9}}))(?!'?\[redacted\]|['\"]?\$|-|<){_WORD}(?: {{1,9}}(?!-|[A-Za-z][\w.-]{{0,60}}/[\w.]{{0,60}}[.-]){_WORD}){{0,15}}(?= {{1,9}}-|\s{{0,9}}(?:$|[\\'\"]))"
)
_FLAG_WITH_VALUE = expression(_FLAG + _WORD)


def redact(text: str) -> str:
    """Replace tokens, keys, passwords and private keys; the names of what held them stay."""
    if _TRIGGER.search(text) is None:
        return text
    text = _KEYS.sub(rf"\1{REDACTED}", text)
    text = _FLAG_WITH_VALUE.sub(rf"\1{REDACTED}", text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


# A private key's lines, an RSA key of 16384 bits and its header among them.
_MAX_KEY_LINES = 400
_KEY_BEGINS = expression(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = expression(r"-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# `- --api-key`, `"--token",`, `--api-key \` alone on a line: the next line is its value.
_FLAG_ALONE = expression(
    rf"(?i)(?:^|[\s'\"])--[\w-]{{0,40}}?(?:{_FLAG_NAMES})['\"]?,?\s{{0,9}}\\?\s{{0,9}}$"
)
# `- name: HF_TOKEN`, `"name": "HF_TOKEN",`: a line soon after holds its value.
_NAME_ALONE = expression(
    rf"(?i)\bname['\"]?\s{{0,3}}:\s{{0,3}}['\"]?[\w.-]{{0,60}}(?:{_NAMES})[\w.-]{{0,20}}['\"]?,?\s{{0,9}}$"
)
_VALUE_OF_NAME = expression(
    r"(?i)(^[\s-]{0,99}['\"]?value['\"]?\s{0,3}:\s{0,3}['\"]?)(?=[^\s'\"])[^'\"\n]{1,2000}"
)
_ITEM = expression(r"(^[\s-]{0,99}['\"]?)[^\s'\"\\,][^'\"\n,]{0,2000}")
_NAME_REACHES = 2


class Redactor:
    """Redacts the lines of one text: a secret can stand on another line than what tells it."""

    def __init__(self) -> None:
        self._key_lines = 0
        self._name_lines = 0
        self._is_flag = False

    @property
    def is_inside_key(self) -> bool:
        """Whether the next line belongs to a private key."""
        return self._key_lines > 0

    def __call__(self, line: str) -> str:
        """The line without secrets."""
        if self._key_lines:
            end = _KEY_ENDS.search(line)
            self._key_lines = 0 if end else self._key_lines - 1
            return REDACTED + (redact(line[end.end() :]) if end else "")
        begin = _KEY_BEGINS.search(line) if "PRIVATE KEY" in line else None
        if begin is not None and _KEY_ENDS.search(line, begin.end()) is None:
            self._key_lines = _MAX_KEY_LINES
        text = redact(line)
        if self._is_flag and not line.lstrip(" '\"").startswith(("--", "- --", "$")):
            text = _ITEM.sub(rf"\1{REDACTED}", text)
        elif self._name_lines:
            text = _VALUE_OF_NAME.sub(rf"\1{REDACTED}", text)
        self._is_flag = "--" in line and _FLAG_ALONE.search(line) is not None
        is_name = "name" in line.lower() and _NAME_ALONE.search(line) is not None
        self._name_lines = _NAME_REACHES if is_name else max(0, self._name_lines - 1)
        return text
