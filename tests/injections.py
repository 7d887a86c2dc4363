"""Texts that a log can hold to take over what shows it: a terminal, a page, a table, a CI runner, a parser."""

TERMINAL = (
    "\x1b[2J\x1b[H\x1b[31mowned", "\x1b]0;owned\x07", "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;b3duZWQ=\x07", "\x1bP$qm\x1b\\", "\x1b_payload\x1b\\", "\x9b31mowned", "\x9d0;owned\x9c", "\x90q\x9c", "\x07\x08\x08owned",
    "fine\rowned", "\x1b]8;;" + "a" * 400 + "\x07", "\x1bc\x1b(0", "\x85owned", "\x0bowned\x0cowned", "\0owned\0",
)  # fmt: skip
UNSEEN = (
    "\u202egnp.exe\u202c", "\u2066a\u2067b\u2069", "\u200e\u200f\u061c", "pay\u200bpal", "a\u200d\u200c\u2060b", "\ufeffa", "\u00ada",
    "\u2028::error::owned", "\u2029## owned", "\u3164\u115f\uffa0", "\U000e0041\U000e007f", "\ufff9a\ufffb", "\u180e\u034f", "\udcff\ud800",
)  # fmt: skip
HTML = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg/onload=alert(1)>', "' onmouseover='alert(1)", "<!-- --> <b>", "--> <b>owned</b>",
    "---> <i>owned</i>", "--!> <i>owned</i>", "&lt;b&gt;&#60;b&#62;&#64;team", "<a href='javascript:alert(1)'>x</a>", "</details></code><h1>owned</h1>", "<?php ?><![CDATA[x]]>",
    "<http://evil.example>", "<style>*{display:none}</style>",
)  # fmt: skip
MARKDOWN = (
    "[x](http://evil.example)", "![x](http://evil.example/x.png)", "[x]: http://evil.example", "http://evil.example/x", "www.evil.example", "mailto:a@evil.example",
    "a@evil.example", "@team/owners", "#123", "fixes #123", "closes GH-123", "resolves https://github.com/o/r/issues/1", "o/r#1", "0123456789abcdef0123456789abcdef01234567",
    "```\n# owned\n```", "````", "`````` owned", "`x``<img src=x>```y`", "`` `<b>owned</b>", "\\`<b>owned</b>`", "| a | b |", "`|x|y|`", "a \\| b | c", "# owned", "- owned", "1. owned",
    "+ owned", "===", "---", "> owned", "    owned", "**owned** __owned__ ~~owned~~ *x*", "$x^2$ $$x$$", "[^1]: owned", "- [x] owned", "~~~", "<!-- x", "\\",
)  # fmt: skip
CSV = (
    "=1+1",
    "=cmd|' /C calc'!A0",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    '"",=1,"',
    'a"b,c;d\n=1',
)
CI = (
    "::error::owned", "::error file=x,line=1::owned", "::set-output name=x::owned", "::add-mask::a", "::stop-commands::x", "::group::x", " ::warning::owned",
    "##[error]owned", "x ##[add-mask]a", "##vso[task.setvariable variable=x]owned", "##teamcity[message text='owned']", "%0A::error::owned", "%0D%0A::notice::x",
    "x\n::error::owned", "x\n  ::set-output name=a::b", "section_start:1:x\r\x1b[0Kowned", "::add-path::/tmp",
)  # fmt: skip
PARSERS = (
    '","kind":"owned","x":"', "\\", "\\u0022,\\u0022", '}\n{"kind":"owned"}', '"} 1\nvllm_triage_owned_total{x="1', "\n# TYPE owned counter\nowned 1", '\\"', "msg=owned level=info x=\"y",
    "<13>1 2026-12-01T00:00:00Z h a - - - owned", "\n<0>kernel: owned", "{braces:owned} {0} %s %(x)s ${x}", "NaN Infinity 1e999",
)  # fmt: skip
SHELL = (
    "$(touch owned)",
    "`touch owned`",
    "; touch owned",
    "| sh",
    "&& sh",
    "'; sh #",
    '"; sh #',
    "-o/etc/owned",
    "\n sh",
    "${IFS}sh",
    "!sh",
    "~root",
)

ALL = (*TERMINAL, *UNSEEN, *HTML, *MARKDOWN, *CSV, *CI, *PARSERS, *SHELL)
