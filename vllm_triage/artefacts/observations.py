"""Observations: what an artefact says, as named values with the lines that show them."""

from typing import Literal, NamedTuple

from vllm_triage.lines import Line

Value = str | float
"""A number, or a text; a name that ends with a unit has its value in it."""

Subject = Literal["metrics", "benchmark", "gpu", "environment", "model", "health", "run"]
"""What an observation is of: an engine's metrics, a benchmark's result, one GPU, one node's
environment, a model's files, an answer or state of a server. `run` tells facts of the run itself."""


class Observation(NamedTuple):
    """What an artefact says of one thing, such as one engine, one GPU or one node."""

    subject: Subject
    values: dict[str, Value]
    """By their names, which are those of the facts of the kinds that they may lead to."""
    lines: dict[str, Line]
    """The line that shows each value; the first stands for all that have none."""
    table: tuple[tuple[str, ...], ...] = ()
    """Values that are best seen beside each other; the first row holds the headings."""
    detail: object = None
    """What the artefact's own module needs to join it with others of its sort."""

    def with_values(self, values: dict[str, Value]) -> "Observation":
        """The same with more values, which other artefacts or the run state."""
        return self._replace(values={**values, **self.values})


class Reading(NamedTuple):
    """What was read of one artefact."""

    observations: tuple[Observation, ...]
    problem: str | None = None
    """Half a sentence that says what is wrong with the file, where not all could be read."""


def line(source: str, number: int, text: str) -> Line:
    """A line of an artefact, without the end that Windows writes."""
    text = text.removesuffix("\r")
    return Line(source, number, text, text)
