"""The plain-text gate: which patterns can match a text at all."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from vllm_triage.literals import Literals, literals

T = TypeVar("T")

_GRAM = 4
_FEW = 64
_ZEROES = str.maketrans("123456789", "000000000")
_ASCII_DIGITS = frozenset("0123456789")
_PIECE = 65_536
# After how many searches it is worth to start hyperscan.
_WORTH_IT = 1_000
# What servers print all day: a text that stands in it tells little.
ORDINARY = """
(APIServer pid=1) INFO:     10.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK
(APIServer pid=1) INFO 01-01 00:00:00 [loggers.py:127] Engine 000: Avg prompt throughput: 10.0 tokens/s,
 Avg generation throughput: 10.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%
INFO 01-01 00:00:00 [logger.py:39] Received request chatcmpl-1: prompt: 'What is the time?',
 params: SamplingParams(n=1, temperature=1.0, max_tokens=10), prompt_token_ids: None, lora_request: None
(EngineCore_DP0 pid=2) INFO 01-01 00:00:00 [gpu_model_runner.py:2338] Starting to load model org/name...
(Worker_TP0 pid=3) WARNING 01-01 00:00:00 [config.py:1] The device has no such support; using the default with this model
"""


_Entry = tuple[tuple[str, ...], tuple[str, ...], int, bool]
"""An item under one of its words: what else a text must hold, which item, whether it has others."""
_Word = tuple[int, str, list[_Entry]]
"""A word's place in the order, the word, and the items that hang on it."""


class Plan(NamedTuple):
    """Under which words a gate looks for which items; plain data."""

    words: list[_Word]
    short: list[_Word]
    """Those that are looked for one by one."""
    by_gram: dict[str, list[_Word]]
    """The others, by four of their characters."""
    numbered: list[tuple[str, str]]
    """The words with digits, and the same with zeroes."""


def planned(items: Iterable[tuple[tuple[str, ...], tuple[str, ...], int]]) -> Plan:
    """Work out the plan for items by their words, their `any_of` and their numbers."""
    groups: defaultdict[str, list[_Entry]] = defaultdict(list)
    every: set[str] = set()
    for words, any_of, number in items:
        every.update(words, any_of)
        if not words:
            for word in any_of:
                groups[word].append(((), (), number, True))
            continue
        longest = max(words, key=len)
        rest = tuple([word for word in words if word != longest])
        groups[longest].append((rest, any_of, number, False))
    found = [
        (place, word, entries) for place, (word, entries) in enumerate(sorted(groups.items()))
    ]
    short, by_gram = _shared_out(found)
    digits = sorted([one for one in every if not _ASCII_DIGITS.isdisjoint(one)])
    return Plan(found, short, by_gram, [(word, word.translate(_ZEROES)) for word in digits])


def _shared_out(words: list[_Word]) -> tuple[list[_Word], dict[str, list[_Word]]]:
    """Give each word to one of its grams: one that is rare in logs and has few words yet."""
    if len(words) <= _FEW:
        return words, {}
    short: list[_Word] = []
    by_gram: dict[str, list[_Word]] = {}
    ordinary = _grams(ORDINARY)
    for item in words:
        word = item[1]
        last = len(word) - _GRAM
        if last < 0:
            short.append(item)
            continue
        best = least = None
        for start in (0, last // 2, last):
            gram = word[start : start + _GRAM]
            taken = (gram in ordinary, len(by_gram.get(gram, ())))
            if least is None or taken < least:
                best, least = gram, taken
        by_gram.setdefault(best or "", []).append(item)
    return short, by_gram


class Gate(Generic[T]):
    """Finds the items of whose words all, and of whose `any_of` words one, stand in a text.

    Each item hangs on its longest word, which is looked for first and once for all items
    that share it; one that has no word but `any_of` hangs on each of those. Words are found
    by four of their characters, so that a text is searched once and not for each word; by
    hyperscan, where it is installed and a log gives it enough to do.
    """

    def __init__(self, items: Sequence[T], plan: Plan) -> None:
        self._items = items
        self._all, self._short, self._by_gram, self._numbered = plan
        self._searches = 0
        self._literals: Literals | None = None

    def candidates(self, text: str) -> Iterator[T]:
        """Give the items that a text may match, each once."""
        words = self._words(text)
        if not words:
            return
        given: set[int] = set()
        for _, _, group in sorted(words):
            for rest, any_of, number, has_others in group:
                if has_others:
                    if number in given:
                        continue
                    given.add(number)
                if all(other in text for other in rest) and (
                    not any_of or any(other in text for other in any_of)
                ):
                    yield self._items[number]

    def numbered(self, text: str) -> tuple[str, ...]:
        """The words with digits that may stand in a text, whatever its digits are.

        Of two texts that are the same but for their digits, and have the same of these words,
        the gate tells the same.
        """
        mapped = text.translate(_ZEROES)
        return tuple(word for word, shape in self._numbered if shape in mapped)

    def _words(self, text: str) -> list[_Word]:
        """The words that stand in a text."""
        fast = self._fast_words(text) if self._by_gram else None
        if fast is not None:
            return fast
        found = [item for item in self._short if item[1] in text]
        if not self._by_gram:
            return found
        grams: set[str] = set()
        for start in range(0, len(text), _PIECE):
            grams |= self._by_gram.keys() & _grams(text[start : start + _PIECE + _GRAM - 1])
        for gram in grams:
            found += [item for item in self._by_gram[gram] if item[1] in text]
        return found

    def _fast_words(self, text: str) -> list[_Word] | None:
        """The same, found by hyperscan; None where it is not there, or not worth its start yet."""
        self._searches += 1
        if self._searches == _WORTH_IT:
            self._literals = literals([word for _, word, _ in self._all])
        if self._literals is None:
            return None
        try:
            return [self._all[number] for number in self._literals.find(text)]
        except Exception:  # noqa: BLE001
            # The plain way goes on where an extension breaks.
            self._literals = None
            return None


def _grams(text: str) -> set[str]:
    return {text[start : start + _GRAM] for start in range(len(text) - _GRAM + 1)}
