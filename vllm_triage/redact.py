"""Secrets out of everything that leaves."""

import regex

from vllm_triage.escapes import AS_TYPED
from vllm_triage.expressions import expression
from vllm_triage.named_secrets import COMMA, REDACTED, without_named
from vllm_triage.secret_names import BARE, is_secret

__all__ = ["REDACTED", "Redactor", "redact"]

# One cheap look decides for most texts that nothing is to be done.
_TRIGGER = expression(
    r"hf_|[sr]k[-_]|pk-lf|api_org_|nvapi-|gh[pousr]_|github_pat_|gl[a-z]{1,5}-|xox[a-z]-|xapp-|eyJ|AKIA|ASIA|AIza|ya29\.|gsk_|dckr_|pypi-|npm_"
    r"|whsec_|SG\.|dapi|hv[sbr]\.|tskey|dop_v1|r8_|pplx-|lsv2_|GOCSPX|1//0|ATATT|NRAK|shp[a-z]{2}_|aGZf"
    r"|:/|hooks\.slack|webhook|bearer|basic |authorization|cookie|key|token|passw|passphrase|secret|credential|_?pass|_?pwd|auth|creds|jwt"
    r"|sig=|signature=|policy=|X-Amz-|-u |--user|--proxy-user|login",
    regex.IGNORECASE,
)
# Tokens that are known by how they begin.
_SHAPES = (
    r"hf_(?:[A-Za-z0-9]{20,}|(?=[a-z]{0,20}[A-Z0-9])[A-Za-z0-9]{10,})",
    r"api_org_[A-Za-z0-9]{16,}",
    r"(?:sk|pk-lf)-[A-Za-z0-9_-]{12,}",
    r"(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9]{10,}",
    r"nvapi-[A-Za-z0-9_-]{16,}",
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"gl(?:pat|rt|dt|ptt|cbt|soat)-[A-Za-z0-9_-]{16,}",
    r"xox[a-z]-[A-Za-z0-9-]{10,}",
    r"xapp-\d-[A-Za-z0-9-]{10,}",
    # A signed token, one without signature, an encrypted one.
    r"eyJ[A-Za-z0-9_-]{8,}\.(?:eyJ[A-Za-z0-9_-]{8,}|[A-Za-z0-9_-]{0,2000}(?=\.[A-Za-z0-9_-]{8}))(?:\.[A-Za-z0-9_-]{0,8000}){0,3}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"ya29\.[A-Za-z0-9_-]{20,}",
    r"GOCSPX-[A-Za-z0-9_-]{16,}",
    r"1//0[A-Za-z0-9_-]{30,}",
    r"gsk_[A-Za-z0-9]{20,}",
    r"dckr_[a-z]{3}_[A-Za-z0-9_-]{16,}",
    r"pypi-[A-Za-z0-9_-]{20,}",
    r"npm_[A-Za-z0-9]{20,}",
    r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    r"dapi[0-9a-f]{32}",
    r"hv[sbr]\.[A-Za-z0-9_-]{16,}",
    r"tskey-[a-z]{2,10}-[A-Za-z0-9-]{10,}",
    r"dop_v1_[0-9a-f]{32,}",
    r"r8_[A-Za-z0-9]{20,}",
    r"pplx-[A-Za-z0-9]{20,}",
    r"lsv2_[a-z]{2}_[A-Za-z0-9_]{20,}",
    r"ATATT3x[A-Za-z0-9_=-]{16,}",
    r"NRAK-[A-Z0-9a-z]{16,}",
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{20,}",
    r"AGE-SECRET-KEY-1[0-9A-Za-z]{16,}",
    # `hf_` in Base64, as a manifest of secrets holds it.
    r"aGZf[A-Za-z0-9+/]{20,}={0,2}",
)
_KEY_LABEL = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_RULES: tuple[tuple[regex.Pattern[str], str], ...] = (
    (
        expression(rf"-----BEGIN {_KEY_LABEL}.*?(?:-----END {_KEY_LABEL}|$)", regex.DOTALL),
        REDACTED,
    ),
    (expression(rf"(?<![A-Za-z0-9])(?:{'|'.join(_SHAPES)})"), REDACTED),
    (expression(r"(?i)\b(bearer|basic):? +[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {REDACTED}"),
    (
        expression(
            r"(?i)(authorization\\{0,3}['\"]?\s{0,3}[,:=]\s{0,3}\[?(?:b?\\{0,3}['\"])?(?:(?:token|digest|negotiate|api-?key) +)?+)"
            r"(?!\[?redacted|bearer |basic )[^\s'\",)]{6,}"
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
            r"(?i)([?&;](?:X-Amz-(?:Signature|Credential|Security-Token)|X-Goog-(?:Signature|Credential)|sig|signature|policy"
            r"|key|token|key-pair-id|AWSAccessKeyId|code|auth|jwt)=)[^&\s\"'\\]{3,}"
        ),
        rf"\1{REDACTED}",
    ),
    (
        expression(
            r"(?i)(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/webhookb2/)[\w/@.-]{8,}"
        ),
        rf"\1{REDACTED}",
    ),
    # The password can hold an @ itself.
    (
        expression(r"(?i)(?<=[a-z0-9+.-]:/{1,2})[^\s/:@'\"]{0,100}:[^\s/'\"]{1,200}@"),
        f"{REDACTED}@",
    ),
    (expression(r"(?i)(?<=[a-z0-9+.-]:/{1,2})[^\s/:@'\"]{16,200}@"), f"{REDACTED}@"),
    (
        expression(r"(?i)(\blogin\s{1,9}\S{1,100}\s{1,9}password\s{1,9})\S{1,200}"),
        rf"\1{REDACTED}",
    ),
    (expression(r"(\bwandb login (?:--relogin )?)[0-9A-Za-z]{20,}"), rf"\1{REDACTED}"),
    (
        expression(
            r"(\b(?:docker|podman|nerdctl|helm registry|oras|sshpass)\b[^\n]{0,200}? -p[= ]?)(?!\d{1,5}:)[^\s'\"]{3,}(?=[^\n]{0,200}$)"
        ),
        rf"\1{REDACTED}",
    ),
    (
        expression(
            r"((?:^|\s)(?:-u|--(?:proxy-)?user)[= ]{1,9}['\"]?(?!\d{1,9}:\d)[^\s:'\"/]{1,100}:)[^\s'\"]{1,200}"
        ),
        rf"\1{REDACTED}",
    ),
    # Incorrect API key provided: X
    (
        expression(
            r"(?i)(\b(?:api|secret|access|private|auth) (?:key|token)(?: provided| is)?\s{0,3}[:=]\s{0,3}\\{0,3}['\"]?)(?!\[redacted|None\b|null\b)(?=[^\s'\"]{0,80}\d|[^\s'\"]{16})[^\s'\",;)}\]\\]{6,}"
        ),
        rf"\1{REDACTED}",
    ),
    (
        expression(r"(?i)(<(password|api[-_]?key|secret|token)>)[^<>\n]{3,500}(?=</\2>)"),
        rf"\1{REDACTED}",
    ),
)
_WORD = rf"(?:'[^'\n]{{0,500}}'?|\"[^\"\n]{{0,500}}\"?|(?:[^\s'\",;\\]|{COMMA}){{1,500}})"
# The server takes several keys: all words up to the next flag, of which a model may be one.
_KEYS = expression(
    rf"(?i)(--api[-_]key(?:=| {{1,9}}))(?!(?-i:(?:API_)?KEY)\b|'?\[redacted\]|['\"]?\$|-|<){_WORD}(?: {{1,9}}(?!-|[A-Za-z][\w.-]{{0,60}}/[\w.]{{0,60}}[.-]){_WORD}){{0,15}}(?= {{1,9}}-|\s{{0,9}}(?:$|[\\'\"]))"
)
# A manifest can have the value before its name.
_BEFORE_NAME = expression(
    r"(?i)(\bvalue\\{0,3}['\"]?\s{0,3}[:=]\s{0,3}\\{0,3}['\"]?)([^\s'\"\\,](?:(?!\bvalue)[^'\"\n\\,]){0,2000}+)(\\{0,3}['\"]?\s{0,3},\s{0,3}\\{0,3}['\"]?(?:name|key)\\{0,3}['\"]?\s{0,3}[:=]\s{0,3}\\{0,3}['\"]?)([\w.-]{1,100})"
)


_ENTITY = expression(r"&(?:quot|apos|amp|nbsp|equals|colon|#\d{2,4}|#x[\dA-Fa-f]{2,4});")

# What Go's and other loggers escape in JSON.
_JSON_ESCAPES = (("\\u0026", "&"), ("\\u003d", "="), ("\\u003D", "="), ("\\u0022", '"'), ("\\u0027", "'"))  # fmt: skip


def _as_typed(text: str) -> str:
    """The text with a keyboard's quotes, blanks and dashes, no entities of HTML and no escapes of JSON."""
    if "&" in text and _ENTITY.search(text) is not None:
        import html

        # In a shipper's HTML a log viewer's may stand.
        text = html.unescape(html.unescape(text))
    if "\\u00" in text:
        for escape, sign in _JSON_ESCAPES:
            text = text.replace(escape, sign)
    return text if text.isascii() else text.translate(AS_TYPED)


def redact(text: str) -> str:
    """Replace tokens, keys, passwords and private keys; the names of what held them stay."""
    if _TRIGGER.search(text) is None:
        return text
    plain = _as_typed(text)
    shown = _redacted(plain)
    return text if shown == plain else shown


def _redacted(text: str) -> str:
    if "\0" in text:
        # Variables or words of a command, as /proc has them.
        redactor = Redactor()
        return "\0".join(redactor.variable(part) for part in text.split("\0"))
    text = _KEYS.sub(rf"\1{REDACTED}", text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = _BEFORE_NAME.sub(_before_name, text)
    return without_named(text)


def _before_name(found: "regex.Match[str]") -> str:
    return f"{found[1]}{REDACTED}{found[3]}{found[4]}" if is_secret(found[4]) else found[0]


# A private key's lines, an RSA key of 16384 bits and its header among them.
_MAX_KEY_LINES = 400
_KEY_BEGINS = expression(rf"-----BEGIN {_KEY_LABEL}")
_KEY_ENDS = expression(rf"-----END {_KEY_LABEL}")
# `- --api-key`, `"--token",`, `--api-key \` alone on a line: the next line is its value.
_FLAG_ALONE = expression(r"(?:^|[\s'\"])(--[\w-]{1,100})['\"]?,?\s{0,9}\\?\s{0,9}$")
# `- name: HF_TOKEN`, `"name": "HF_TOKEN",`: a line soon before or after holds its value.
_NAME_ALONE = expression(
    r"(?i)\b(?:name|key)['\"]?\s{0,3}[:=]\s{0,3}['\"]?([\w.-]{1,100})['\"]?,?\s{0,9}$"
)
_VALUE_OF_NAME = expression(
    r"(?i)(^[\s-]{0,99}['\"]?value['\"]?\s{0,3}[:=]\s{0,3}['\"]?)(?![|>][+-]?\d?\s{0,9}$)(?=[^\s'\"])[^'\"\n]{1,8000}"
)
# `HF_TOKEN: |` and `value: >-`: the lines further in are its value.
_BLOCK = expression(
    r"(?i)^(\s{0,99}(?:- {1,9})?)['\"]?([\w.-]{1,100})['\"]?\s{0,3}:\s{1,9}[|>][+-]?\d?\s{0,9}$"
)
_ITEM = expression(r"(^[\s-]{0,99}['\"]?)[^\s'\"\\,][^'\"\n,]{0,8000}")
_VARIABLE = expression(r"(?s)(\w{1,200})=(.+)")
_NAME_REACHES = 2


class Redactor:
    """Redacts the lines of one text: a secret can stand on another line than what tells it."""

    def __init__(self) -> None:
        self._key_lines = 0
        self._name_lines = 0
        self._is_flag = False
        self._block: int | None = None
        self.is_name = False
        """Whether the last line names a secret whose value may stand on the lines before."""

    @property
    def is_inside_key(self) -> bool:
        """Whether the next line belongs to a private key."""
        return self._key_lines > 0

    def __call__(self, line: str) -> str:
        """The line without secrets."""
        self.is_name = False
        if self._key_lines:
            end = _KEY_ENDS.search(line)
            self._key_lines = 0 if end else self._key_lines - 1
            return REDACTED + (redact(line[end.end() :]) if end else "")
        begin = _KEY_BEGINS.search(line) if "PRIVATE KEY" in line else None
        if begin is not None and _KEY_ENDS.search(line, begin.end()) is None:
            self._key_lines = _MAX_KEY_LINES
        depth = len(line) - len(line.lstrip())
        if self._block is not None:
            if depth > self._block or not line.strip():
                return line[:depth] + (REDACTED if line.strip() else "")
            self._block = None
        text = redact(line)
        if self._is_flag and not line.lstrip(" '\"").startswith(("--", "- --", "$")):
            text = _ITEM.sub(rf"\1{REDACTED}", text)
        elif self._name_lines:
            text = self.value(text)
        flag = _FLAG_ALONE.search(line) if "--" in line else None
        self._is_flag = flag is not None and is_secret(flag[1])
        lower = line.lower()
        name = _NAME_ALONE.search(line) if "name" in lower or "key" in lower else None
        self.is_name = name is not None and is_secret(name[1])
        block = _BLOCK.match(line) if "|" in line or ">" in line else None
        if block is not None and (
            is_secret(block[2]) or (self._name_lines and block[2].lower() == "value")
        ):
            self._block = len(block[1])
        self._name_lines = _NAME_REACHES if self.is_name else max(0, self._name_lines - 1)
        return text

    @staticmethod
    def value(line: str) -> str:
        """A line `value: X` near the name of a secret, without the value."""
        return _VALUE_OF_NAME.sub(rf"\1{REDACTED}", line)

    def variable(self, text: str) -> str:
        """One variable of an environment, or one word of a command, as /proc has them."""
        found = _VARIABLE.fullmatch(text)
        if found is not None and (found[1] in BARE or is_secret(found[1])):
            return f"{found[1]}={REDACTED}"
        return self(text)
