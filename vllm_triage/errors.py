"""The errors raised on purpose.

TriageError
├── SourceError   an input that cannot be read
└── RuleError     a pattern file that is wrong
"""


class TriageError(Exception):
    """Something the caller can act on; its text is one sentence for people."""


class SourceError(TriageError):
    """An input could not be read; the text names it and what to do."""


class RuleError(TriageError):
    """A pattern file is wrong; the text names the file, the pattern and the offending text."""
