"""Secrets out of everything that leaves."""

import regex

from vllm_triage.expressions import expression

REDACTED = "[redacted]"

# One cheap look decides for most lines that nothing is to be done.
_TRIGGER = expression(
    r"hf_|sk-|://[^\s/@]{1,200}@|bearer|api.?key|token|passw|secret|AKIA|ASIA|PRIVATE KEY|X-Amz-|authorization|gh[pousr]_|glpat-|eyJ|xox[bp]-",
    regex.IGNORECASE,
)
_RULES: tuple[tuple[regex.Pattern[str], str], ...] = (
    (
        expression(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
            regex.DOTALL,
        ),
        REDACTED,
    ),
    (expression(r"\bhf_[A-Za-z0-9]{10,}"), REDACTED),
    (expression(r"\bsk-[A-Za-z0-9_-]{12,}"), REDACTED),
    (expression(r"\bgh[pousr]_[A-Za-z0-9]{20,}"), REDACTED),
    (expression(r"\bglpat-[A-Za-z0-9_-]{16,}"), REDACTED),
    (expression(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"), REDACTED),
    (expression(r"\bxox[bp]-[A-Za-z0-9-]{10,}"), REDACTED),
    (expression(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), REDACTED),
    (expression(r"(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {REDACTED}"),
    (
        expression(r"(?i)(X-Amz-(?:Signature|Credential|Security-Token)=)[^&\s\"']+"),
        rf"\1{REDACTED}",
    ),
    (
        expression(r"(?i)([a-z][a-z0-9+.-]{0,40}://)[^\s/:@]{1,100}:[^\s/@]{1,200}@"),
        rf"\1{REDACTED}@",
    ),
    # --api-key X, api_key='X', "hf_token": "X", AWS_SECRET_ACCESS_KEY=X; never max_tokens=128 or tokenizer=...
    (
        expression(
            r"(?i)((?:^|[\s'\"{(,;&?-])[\w-]{0,40}?(?:api[_-]?key|hf[_-]?token|hub[_-]?token|access[_-]?key|auth[_-]?token"
            r"|access[_-]?token|secret(?:[_-]?(?:access[_-]?)?key)?|passw(?:or)?d|(?<![a-z])token)['\"]?\s{0,3}[=:]\s{0,3}\[?['\"]?)"
            r"(?!None\b|null\b|True\b|False\b|EMPTY\b|\[?redacted|\$\{?[A-Z][A-Z0-9_]*\}?(?=[\s'\"]|$))[^\s'\",;&)}\]]{3,}"
        ),
        rf"\1{REDACTED}",
    ),
)
_FLAG_WITH_VALUE = expression(
    r"(?i)(--(?:api-key|hf-token|ssl-keyfile-password)[= ]+)(?!'?\[redacted\])(?:'[^']*'|\"[^\"]*\"|\S+)"
)


def redact(text: str) -> str:
    """Replace tokens, keys, passwords and private keys; the names of what held them stay."""
    if _TRIGGER.search(text) is None:
        return text
    text = _FLAG_WITH_VALUE.sub(rf"\1{REDACTED}", text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
