"""Results of `vllm bench`, as they are printed and as they are saved as JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

from vllm_triage.artefacts.heads import TITLE
from vllm_triage.artefacts.observations import Observation, Reading, Value
from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_MAX_RESULTS = 1_000
_MAX_ERRORS = 10_000
_MANY = 1e15
_LONG = 200
_SEVERAL = 20
"""Of how many requests at once a server's throughput is judged; a few cannot fill a batch."""

# What the results of `serve` are called where they are saved, and where they are printed.
_SAVED = {
    "completed": "successful_requests", "failed": "failed_requests", "duration": "duration_s",
    "request_rate": "configured_requests_per_s", "max_concurrency": "max_concurrency",
    "request_throughput": "requests_per_s", "output_throughput": "output_tokens_per_s",
    "total_token_throughput": "total_tokens_per_s", "mean_ttft_ms": "mean_ttft_ms",
    "median_ttft_ms": "median_ttft_ms", "p99_ttft_ms": "p99_ttft_ms", "mean_tpot_ms": "mean_tpot_ms",
    "median_tpot_ms": "median_tpot_ms", "mean_e2el_ms": "mean_e2el_ms", "num_prompts": "offered_requests",
    "total_output_tokens": "output_tokens",
    # throughput and latency
    "requests_per_second": "requests_per_s", "tokens_per_second": "total_tokens_per_s",
    "num_requests": "successful_requests", "elapsed_time": "duration_s", "avg_latency": "mean_latency_s",
}  # fmt: skip
_PRINTED = {
    "successful requests": "successful_requests", "failed requests": "failed_requests",
    "benchmark duration (s)": "duration_s", "request rate configured (rps)": "configured_requests_per_s",
    "maximum request concurrency": "max_concurrency", "request throughput (req/s)": "requests_per_s",
    "output token throughput (tok/s)": "output_tokens_per_s",
    "total token throughput (tok/s)": "total_tokens_per_s", "mean ttft (ms)": "mean_ttft_ms",
    "median ttft (ms)": "median_ttft_ms", "p99 ttft (ms)": "p99_ttft_ms", "mean tpot (ms)": "mean_tpot_ms",
    "median tpot (ms)": "median_tpot_ms", "mean e2el (ms)": "mean_e2el_ms",
    "total generated tokens": "output_tokens", "total num output tokens": "output_tokens",
    "avg latency": "mean_latency_s", "average latency": "mean_latency_s", "total time": "duration_s",
}  # fmt: skip
_NUMBER = expression(r"-?\d[\d,]{0,30}(?:\.\d{1,30})?")
_RATE = expression(r"([\d.]{1,20}) (requests|total tokens|output tokens|tokens)/s")
_SCALAR = expression(
    r'(?<!\\)"([a-z]\w{2,40})": ?(-?\d{1,20}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?|"inf")'
)
_RATES = {
    "requests": "requests_per_s", "total tokens": "total_tokens_per_s",
    "tokens": "total_tokens_per_s", "output tokens": "output_tokens_per_s",
}  # fmt: skip
# What stands in `errors`, and what it comes to.
_FAILURES = {
    "refused": ("Cannot connect to host", "Connect call failed", "Connection refused", "ClientConnectorError"),
    "no answer in time": ("TimeoutError", "Timeout on reading", "Gateway Time-out", "Gateway Timeout"),
    "rejected": ("Bad Request", "Not Found", "Unprocessable Entity", "Request Entity Too Large"),
}  # fmt: skip


def read(lines: Sequence[Line]) -> Reading:
    """Read the results of one file: tables, one JSON object, a list of them or one a line."""
    first = next((line.text.lstrip("\ufeff \t") for line in lines if line.text.strip()), "")
    if not first.startswith(("{", "[")):
        return Reading(tuple(_observations(_printed(lines))))
    results, problem = _saved(lines)
    found = tuple(_observations(results))
    return Reading(found, problem or (None if found else "no result of a benchmark in it"))


class _Result:
    """What one benchmark tells."""

    def __init__(self, sort: str) -> None:
        self.values: dict[str, Value] = {"benchmark": sort}
        self.lines: dict[str, Line] = {}
        self.model: str | None = None

    def put(self, name: str, value: float, line: Line) -> None:
        if isfinite(value) and 0 <= value < _MANY:
            self.values.setdefault(name, value)
            self.lines.setdefault(name, line)

    def number(self, name: str) -> float | None:
        value = self.values.get(name)
        return value if isinstance(value, int | float) else None


def _observations(results: Iterator[_Result] | Sequence[_Result]) -> Iterator[Observation]:
    for count, result in enumerate(results):
        if count >= _MAX_RESULTS:
            return
        if not result.lines:
            continue
        _derive(result)
        yield Observation("benchmark", result.values, result.lines)
        if result.model:
            line = next(iter(result.lines.values()))
            yield Observation("run", {"model": result.model}, {"model": line})


def _derive(result: _Result) -> None:
    """What follows from a benchmark's numbers: how much was asked of the server, and what it made of it."""
    values, number = result.values, result.number
    done, duration = number("successful_requests"), number("duration_s")
    rate, tokens = number("requests_per_s"), number("output_tokens")
    for name in ("mean_ttft_ms", "mean_tpot_ms"):
        # Where no request was answered, or the answer did not come as a stream, 0 is printed.
        if number(name) == 0:
            del values[name]
    if duration is None and tokens and number("output_tokens_per_s"):
        duration = tokens / (number("output_tokens_per_s") or 1)
    if done is None and rate and duration:
        done = values["successful_requests"] = round(rate * duration)
    if number("output_tokens_per_s") is None and tokens and duration:
        values["output_tokens_per_s"] = tokens / duration
    lost = number("failed_requests")
    if lost is None and done is not None and number("offered_requests"):
        lost = values["failed_requests"] = max(0.0, (number("offered_requests") or 0) - done)
    if lost and done is not None:
        values["failed_share_pct"] = 100 * lost / (lost + done)
        values.setdefault("failure", "not said")
    _load(result, done, duration)


def _load(result: _Result, done: float | None, duration: float | None) -> None:
    values, number = result.values, result.number
    offered, limit = number("configured_requests_per_s"), number("max_concurrency")
    if done is None:
        return
    at_once = min(done, limit) if limit else done
    values["load"] = "at a rate" if offered else "many at once" if at_once >= _SEVERAL else "few at once"  # fmt: skip
    took = number("mean_e2el_ms")
    ttft, tpot, tokens = number("mean_ttft_ms"), number("mean_tpot_ms"), number("output_tokens")
    if took is None and ttft is not None and tpot is not None and tokens is not None and done:
        took = ttft + tpot * tokens / done
    if offered and duration and took is not None and not limit:
        # The last request is offered only then, and takes its time.
        values["served_share_pct"] = min(100.0, 100 * (done / offered + took / 1000) / duration)


def _printed(lines: Sequence[Line]) -> Iterator[_Result]:
    result: _Result | None = None
    for line in lines:
        text = line.text.strip()
        begun = _begun(text, result)
        if begun is not None:
            if result is not None:
                yield result
            result = begun
        result = result or _Result("serve")
        if text.startswith("Throughput: "):
            for amount, name in _RATE.findall(text[:_LONG]):
                result.put(_RATES[name], float(_plain(amount)), line)
        else:
            _put_row(text, line, result)
    if result is not None:
        yield result


def _begun(text: str, result: _Result | None) -> _Result | None:
    """The result that begins with this line."""
    if TITLE.strip() in text:
        return _Result("serve")
    if text.startswith("Avg latency:"):
        return _Result("latency")
    if text.startswith("Throughput: ") and (result is None or "requests_per_s" in result.values):
        return _Result("throughput")
    return None


def _put_row(text: str, line: Line, result: _Result) -> None:
    label, _, rest = text.partition(":")
    name = _PRINTED.get(label.lower())
    found = _NUMBER.match(rest.strip()[:60])
    if found is None:
        return
    value = float(found[0].replace(",", ""))
    if name is not None:
        result.put(name, value, line)
    elif label == "Average latency per output token":
        # What scripts before 0.3.1 printed instead of the table: the prompt's share is in it.
        result.values["benchmark"] = "latency"
        result.put("mean_tpot_ms", 1000 * value, line)


def _plain(amount: str) -> str:
    return amount if amount.count(".") < 2 and amount != "." else "0"


def _saved(lines: Sequence[Line]) -> tuple[list[_Result], str | None]:
    """The results of a JSON file; what is cut off is read as far as it goes."""
    try:
        whole = json.loads("\n".join(line.text for line in lines))
    except (ValueError, RecursionError):
        return _one_a_line(lines)
    results = whole if isinstance(whole, list) else [whole]
    where = _Finder(lines)
    found = [one for one in results[:_MAX_RESULTS] if isinstance(one, dict)]
    return [_of(one, where, position) for position, one in enumerate(found)], None


def _one_a_line(lines: Sequence[Line]) -> tuple[list[_Result], str | None]:
    results: list[_Result] = []
    damaged: list[Line] = []
    for line in lines:
        if not line.text.strip():
            continue
        try:
            one = json.loads(line.text)
        except (ValueError, RecursionError):
            damaged.append(line)
            continue
        if isinstance(one, dict) and len(results) < _MAX_RESULTS:
            results.append(_of(one, _Finder([line])))
    if not damaged:
        return results, None
    scalars: dict[str, object] = {}
    for line in damaged:
        for name, text in _SCALAR.findall(line.text):
            scalars.setdefault(name, "inf" if text == '"inf"' else float(text))
    problem = "the JSON is damaged or cut off; what could be read was judged"
    if not any(name in _SAVED for name in scalars):
        return results, problem
    return [*results, _of(scalars, _Finder(damaged))], problem


class _Finder:
    """Finds the lines in which values stand; of a line that holds several, the value alone is shown."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._own: dict[str, list[Line]] = {}
        self._shared: list[Line] = []
        for line in lines:
            key, sign, rest = line.text.strip().removeprefix('"').partition('":')
            if sign and (len(line.text) >= _LONG or '":' in rest or key.startswith("{")):
                self._shared.append(line)
            elif sign and key in _SAVED:
                self._own.setdefault(key, []).append(line)

    def line(self, key: str, position: int) -> Line | None:
        """The line of a key in the result of this position."""
        own = self._own.get(key, ())
        if position < len(own):
            return own[position]
        for line in self._shared:
            start = -1
            for _ in range(position + 1):
                start = line.text.find(f'"{key}":', start + 1)
                if start < 0:
                    break
            if start >= 0:
                shown = line.text[start : start + 60].partition(",")[0].rstrip("}] ")
                return line._replace(text=shown, raw=shown)
        return None


def _of(found: Mapping[str, object], where: _Finder, position: int = 0) -> _Result:
    sort = (
        "latency"
        if "avg_latency" in found
        else "throughput"
        if "elapsed_time" in found
        else "serve"
    )
    result = _Result(sort)
    for key, name in _SAVED.items():
        value = found.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        line = where.line(key, position)
        if line is not None:
            try:
                result.put(name, float(value), line)
            except OverflowError:
                continue
    model = found.get("model_id")
    if isinstance(model, str) and 0 < len(model) <= 300:
        result.model = model
    errors = found.get("errors")
    if isinstance(errors, list):
        _put_failure(result, [one for one in errors[:_MAX_ERRORS] if isinstance(one, str) and one])
    return result


def _put_failure(result: _Result, errors: Sequence[str]) -> None:
    """What most of the requests failed of."""
    counts = {
        failure: sum(any(word in one for word in words) for one in errors)
        for failure, words in _FAILURES.items()
    }
    failure = max(counts, key=lambda name: counts[name])
    if errors and counts[failure] * 2 > len(errors):
        result.values["failure"] = failure
        done = result.lines.get("failed_requests") or result.lines.get("successful_requests")
        if done is not None:
            result.lines["failure"] = done
        words = next(one for one in errors if any(word in one for word in _FAILURES[failure]))
        result.values["detail"] = " ".join(words.split())[-160:]
