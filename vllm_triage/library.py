"""The library: what a program calls, with results that are pydantic models."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vllm_triage import pipeline, scanner
from vllm_triage.contract import Report, Update, validated


def triage(
    inputs: str | Path | Sequence[str | Path] | Iterable[str],
    *,
    rules: Sequence[Path | str] = (),
    redact: bool = True,
    thresholds: Mapping[str, float | str] | None = None,
) -> Report:
    """Triage logs and give the whole answer.

    `inputs` is a path, a sequence of paths (files, folders, globs; they are one
    deployment), or text lines: an open file, any other iterator, or a list of texts of
    which none is a file and some hold blanks. `thresholds` has other values for some of
    those that `vllm-triage kinds` lists, such as `{"ttft-ms": 500}`.

    Raises SourceError when none of the inputs can be read, RuleError when a rule folder is wrong,
    TriageError for a threshold that is none.
    """
    return validated(pipeline.triage(inputs, rules=rules, redact=redact, thresholds=thresholds))


class Scanner(scanner.Scanner):  # noqa: D101  # it has the docstring of its base
    __doc__ = scanner.Scanner.__doc__

    def feed(self, line: str) -> Iterator[Update]:
        """Take one line (or several, with newlines); give the incidents that it completes or changes."""
        return map(validated, super().feed(line))

    def quiet(self, since: int) -> Iterator[Update]:
        """Give the incidents of processes that printed nothing after line `since`.

        What they said last is taken as ended; a traceback that has not come to its exception is not.
        """
        return map(validated, super().quiet(since))

    def close(self) -> Iterator[Update]:
        """End the stream; give the incidents that only now are complete, and the last counts."""
        return map(validated, super().close())

    def report(self, *, apply_steps: Collection[int] = ()) -> Report:
        """The answer so far; the suggested commands have the changes of these steps, else of the first."""
        return validated(super().report(apply_steps=apply_steps))
