"""Secret names: which names of variables, flags, fields and headers stand for a secret."""

from vllm_triage.expressions import expression

# HF_TOKEN, hubToken, x-api-key, TOKEN2: capitals in a row, a word, digits.
_WORD = expression(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# A secret wherever it stands in a name.
_GRAVE = expression(
    r"passw(?:or)?ds?[a-z]?|passphrases?|passcodes?|secrets?[a-z]?|credentials?|cookies?|apikeys?|[a-z]{1,20}(?:password|passwd|secret|apikey)"
)
# What makes a name one of something about a secret, or of where it lies.
_ABOUT = frozenset(
    ("path", "file", "filename", "dir", "directory", "folder", "name", "names", "id", "ids", "url", "uri", "endpoint", "type", "kind", "length",
     "len", "count", "counts", "limit", "size", "budget", "threshold", "ttl", "expiry", "expires", "expiration", "timeout", "policy", "mount",
     "ref", "version", "algorithm", "format", "prefix", "suffix", "enabled", "required", "mode", "parallelism", "usage", "rate", "throughput",
     "latency", "probs", "logprobs", "idx", "index", "indices", "pos", "position", "positions", "mask", "level", "method", "error", "loc", "shape",
     "dtype", "quant", "scale", "strategy", "ms", "s", "per", "num", "max", "min", "hash", "manager", "provider", "list", "details", "block",
     "blocks", "source", "store", "storage", "dimension", "dim", "info", "cache", "map", "sets", "set", "head", "heads", "string", "str", "text")
)  # fmt: skip
# Tokens of a text, of which a model speaks.
_OF_TEXT = frozenset(
    ("bos", "eos", "pad", "unk", "sep", "cls", "mask", "special", "stop", "image", "video", "audio", "start", "end", "next", "last", "first",
     "per", "inter", "output", "input", "prompt", "draft", "think", "reasoning", "extra", "additional", "added", "mm", "placeholder", "sampled",
     "bonus", "cached", "new", "unexpected", "dummy", "invalid", "begin", "max", "min", "num", "each", "tool", "call", "decode", "prefill",
     "target", "adapter", "time", "cost", "previous", "prev", "current", "fim", "patch", "vision", "speech", "of", "a", "every")
)  # fmt: skip
_OF_KEY = frozenset(
    ("api", "access", "secret", "private", "encryption", "signing", "session", "account", "master", "webhook", "license", "storage",
     "subscription", "service", "auth", "admin", "client", "deploy", "shared", "ssh", "app", "hf", "openai", "vllm", "functions")
)  # fmt: skip
_OF_PASS = frozenset(
    (
        "db",
        "user",
        "redis",
        "mysql",
        "pg",
        "postgres",
        "smtp",
        "proxy",
        "root",
        "admin",
        "ssh",
        "http",
        "ftp",
        "mail",
        "my",
    )
)
_OF_TOKENS = frozenset(("hf", "hub", "api", "auth", "access", "bearer", "refresh", "github"))
_SHORT = ("PASS", "PWD", "AUTH", "CREDS", "CRED", "KEY")
BARE = frozenset(("KEY", "PASS", "AUTH", "CREDS", "CRED"))
"""Alone a secret only where it is a variable that is set: `KEY=...`."""


def is_secret(name: str) -> bool:
    """Tell whether what has this name is a secret: HF_TOKEN_2, DB_PASSWD, sessionToken, x-api-key.

    Not what is about one, as API_KEY_FILE, nor tokens of a text, as max_tokens, eos_token or tokenizer.
    """
    parts = _WORD.findall(name)
    words = [part.lower() for part in parts]
    # HF_TOKEN_2, MY_TOKEN_PROD
    while len(words) > 1 and (words[-1].isdecimal() or words[-1] in ("x", "base", "value")):
        words.pop()
    if not words or words[-1] in _ABOUT or words[-2:] == ["allow", "credentials"]:
        return False
    if any(_GRAVE.fullmatch(word) for word in words):
        return True
    is_variable = name.upper() == name and len(words) > 1
    for index in range(len(words) - 1, -1, -1):
        word, before = words[index], words[index - 1] if index else ""
        is_last = index == len(words) - 1
        if not is_last and not (is_variable and word in ("token", "key")):
            continue
        if _is_token(word, before, is_capital=parts[index].isupper()):
            return True
        if word in ("key", "keys") and before in _OF_KEY:
            return True
        if not is_last:
            continue
        if parts[index].startswith("KEY") and len(word) <= 4 and word != "keys" and is_variable:
            return True
        if parts[index] in _SHORT and is_variable:
            return True
        if word in ("pass", "pwd") and before in _OF_PASS:
            return True
    return False


def _is_token(word: str, before: str, *, is_capital: bool) -> bool:
    if word in ("token", "jwt"):
        return before not in _OF_TEXT
    if word == "tokens":
        return before in _OF_TOKENS
    if is_capital:
        # HF_TOKENX, HFTOKEN; never TOKENS or TOKENIZER.
        return (word.endswith("token") and word != "tiktoken") or (
            word.startswith("token") and len(word) == 6 and word != "tokens"
        )
    return word.endswith("token") and word.removesuffix("token") in _OF_TOKENS
