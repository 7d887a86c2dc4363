"""Runs: what the log says of each server run, from its banner to its end."""

from collections import OrderedDict
from typing import NamedTuple

from vllm_triage.arguments import config_fields, pairs, printed_arguments
from vllm_triage.echoes import devices
from vllm_triage.expressions import expression
from vllm_triage.kinds import Level, Phase
from vllm_triage.lines import Key, Line, Origin, Prefix
from vllm_triage.memory import STARTS
from vllm_triage.numbers import whole
from vllm_triage.phases import READY, STARTED, STARTING, STOPPING
from vllm_triage.platforms import DETECTED, SIGNS, Platform
from vllm_triage.releases import names_package
from vllm_triage.run import Run
from vllm_triage.tracebacks import Frame

_MAX_ARGUMENTS_TEXT = 65536
_MAX_RUNS = 4096
_MANY = 16
_VERSION = r"(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?[\w.+-]{0,80})"
_BANNER = expression(rf"vLLM (?:API )?server version {_VERSION}")
_LOGO = expression(rf"[█▀▄ ] {{1,4}}version {_VERSION}\s*$")
_LOGO_MODEL = expression(r"[█▀▄ ] {1,4}model {1,4}(\S.*)$")
_ENGINE = expression(
    rf"Initializing an? (?:(V[01]) )?LLM engine(?: \(v{_VERSION}\))? with config: "
)
_DUMPED = expression(rf"for (V1) LLM engine \(v{_VERSION}\) with config: ")
_KV_TOKENS = expression(r"KV cache size: ([\d,]+) tokens")
_KV_BLOCKS = expression(r"# (?:GPU|\w+) blocks: (\d+)")
_WORLD = expression(r"world size (\d+)")
_NCCL = expression(r"(?:\bnccl==|NCCL version )(\d+\.\d+(?:\.\d+)?)")
_TORCH = expression(
    r"(?:\btorch(?:==| version:? )|^PyTorch version *: |^torch {2,})(\d+\.\d+\.\d+\S*)"
)
_OK = expression(r'"(?:POST|GET) (?:/v\d+/|/generate)\S* HTTP/[\d.]+" 2\d\d')
_POST = expression(r'"POST \S+ HTTP/[\d.]+" (\d)\d\d')

_VISIBLE = expression(
    r"(?:export |.{0,40}\benv: ?|- )?CUDA_VISIBLE_DEVICES[=:] ?['\"]?(\d[\d,]{0,200})['\"]?\s*$"
)
_LISTED_GPU = expression(
    r"(?:GPU models and configuration: )?GPU (\d{1,2}): (?:NVIDIA|Tesla|GeForce|Quadro|AMD)\b"
)
# Bootstrap : Using eth0:10.0.0.1<0>; NET/Socket : Using [0]docker0:172.17.0.1<0> [1]ens5:10.0.0.1<0>
_INTERFACE = expression(r"(?<=[\s\]])([a-z][\w.-]{1,14}):[\w.:%\[\]]{3,50}<\d+>")
_VIRTUAL = expression(r"docker|veth|virbr|br-|lo$|cni|flannel|cali|tun|tap|podman")
_TURNS = (*READY, *STOPPING, *STARTING)
_ECHOES = ("vllm serve ", "openai.api_server", " run ", "args:", "command:", "entrypoint:")


class Served(NamedTuple):
    """What a stretch of lines of one container says that show nothing but a server serving."""

    first: int
    """Its first line; lines are counted from 0."""
    lines: int
    first_time: str | None
    last_time: str | None
    last_answer: int | None
    """The last line that shows a request answered."""
    is_service: bool
    """Whether an access line shows the API in use."""
    is_engine: bool
    """Whether the engine speaks of requests or of its own statistics."""


def service(text: str) -> tuple[bool, bool]:
    """Whether an access line shows the API in use, and whether it shows a request answered."""
    found = _POST.search(text)
    is_service = found is not None or _OK.search(text) is not None
    return is_service, found is not None and found[1] == "2"


# Without one of these an indented line says nothing but which packages there are.
_TELLING = (
    "rgs: ", "█", "LLM engine", *_ECHOES, " : Using ", "CUDA_VISIBLE_DEVICES",
    "KV cache size: ", " blocks: ", "world size ", "ccl==", "NCCL version",
)  # fmt: skip


def says_nothing(text: str) -> bool:
    """Tell that an indented line of a log states no fact of its run; sure where it says so."""
    return not (
        any(words in text for words in _TELLING)
        or text.startswith(STARTS)
        or _LISTED_GPU.match(text)
        or _BANNER.search(text)
        or _TORCH.search(text)
        or names_package(text)
    )


def is_idle_talk(text: str) -> bool:
    """Tell a message of vLLM's logger from which a run with a banner learns no more than the time."""
    return not text.startswith(_TURNS) and says_nothing(text)


class Runs:
    """Follows the runs of all inputs; keeps the last `limit` of them."""

    def __init__(self, limit: int = _MAX_RUNS) -> None:
        self._limit = limit
        self._all: OrderedDict[int, Run] = OrderedDict()
        self._current: OrderedDict[tuple[str, str | None], Run] = OrderedDict()
        self._started = 0
        self._platform = Platform()

    @property
    def all(self) -> tuple[Run, ...]:
        """The runs in the order in which they began; of very many the last."""
        return tuple(self._all.values())

    def may_learn_release(self, source: str) -> bool:
        """Whether any line of a source may tell which release a run is of; of many containers, always."""
        if len(self._current) > _MANY:
            return True
        return any(
            run.release.is_open for (name, _), run in self._current.items() if name == source
        )

    def of(self, line: Line) -> Run:
        """The run in which a line was said."""
        run = self._all.get(line.run) if line.run is not None else None
        return self.current(line) if run is None else run

    def current(self, line: Line) -> Run:
        """The run that a line belongs to."""
        key = (line.source, line.container)
        run = self._current.get(key)
        if run is None:
            run = self._start(line)
        elif len(self._current) > 1:
            self._current.move_to_end(key)
        return run

    def latest(self, line: Line) -> Run:
        """The run of a server that began last, else the last of all; where there is none, one that this line begins."""
        last = list(reversed(self._all.values()))
        return (
            next((one for one in last if one.has_banner), last[0]) if last else self._start(line)
        )

    def is_last(self, run: Run) -> bool:
        """Whether no other run of its container has begun since."""
        return self._current.get((run.source, run.container)) is run

    def _start(self, line: Line) -> Run:
        before = self._current.get((line.source, line.container))
        run = Run(line.source, line.number, line.container, self._started)
        if before is not None:
            run.release = before.release.after()
        run.platform = Platform(self._platform) if before is None else before.platform
        self._started += 1
        self._all[run.index] = run
        self._current[line.source, line.container] = run
        if len(self._all) > self._limit:
            self._all.popitem(last=False)
        self._current.move_to_end((line.source, line.container))
        if len(self._current) > self._limit:
            self._current.popitem(last=False)
        return run

    def feed(self, line: Line) -> Run:
        """Take one line and give its run."""
        run = self.current(line)
        text = line.text
        if line.origin is Origin.ACCESS:
            self._access(run, line)
        elif line.origin is not Origin.LOG:
            run.phase = Phase.SERVING
            run.was_serving = True
        elif line.level is not Level.DEBUG:
            run = self._log(run, line, text)
        if ("GiB" in text or " took " in text) and line.origin is Origin.LOG:
            run.memory.feed((line.process, line.pid), text)
        if line.time is not None:
            run.first_seen = run.first_seen or line.time
            run.last_seen = line.time
        run.lines += 1
        return run

    def inside(
        self, place: tuple[str, None], key: Key, prefix: Prefix, text: str, own: Frame | None
    ) -> Run | None:
        """Take an indented line of a traceback that `says_nothing`; give its run.

        `place` is the process's source and container, `own` is the frame of vLLM's that it is. None, and nothing taken, where it may go on
        from what was said before.
        """
        run = self._current.get(place)
        if run is None or (prefix.level is None and run.echoes.is_waiting):
            return None
        if run.release.is_open and not run.release.inside(key, text, own):
            return None
        if len(self._current) > 1:
            self._current.move_to_end(place)
        if prefix.time is not None:
            run.first_seen = run.first_seen or prefix.time
            run.last_seen = prefix.time
        run.lines += 1
        return run

    def in_progress(self, place: tuple[str, None]) -> Run | None:
        """The run to which indented lines of tracebacks that `says_nothing` add no more than themselves; None where they may say more."""
        run = self._current.get(place)
        return None if run is None or run.echoes.is_waiting or run.release.is_open else run

    def go_on(self, run: Run, lines: int, first_time: str | None, last_time: str | None) -> None:
        """Take so many of these lines of a run, said from one time to another."""
        if len(self._current) > 1:
            self._current.move_to_end((run.source, run.container))
        run.first_seen = run.first_seen or first_time
        run.last_seen = last_time or run.last_seen
        run.lines += lines

    @staticmethod
    def _access(run: Run, line: Line) -> None:
        is_service, is_answer = service(line.text)
        if is_service:
            if run.phase is not Phase.SHUTDOWN:
                run.phase = Phase.SERVING
            run.was_serving = True
        if is_answer:
            run.last_answer = line.number

    def serve(self, source: str, container: str | None, number: int, served: "Served") -> Run:
        """Take lines that show nothing but a server serving, counted from line `number`."""
        run = self._current.get((source, container))
        if run is None:
            run = self._start(Line(source, number + served.first, "", "", container=container))
        elif len(self._current) > 1:
            self._current.move_to_end((source, container))
        if served.is_engine or (served.is_service and run.phase is not Phase.SHUTDOWN):
            run.phase = Phase.SERVING
        run.was_serving = run.was_serving or served.is_engine or served.is_service
        if served.last_answer is not None:
            run.last_answer = number + served.last_answer
        run.first_seen = run.first_seen or served.first_time
        run.last_seen = served.last_time or run.last_seen
        run.lines += served.lines
        return run

    def _log(self, run: Run, line: Line, text: str) -> Run:
        if "version" in text or "rgs: " in text or "args:" in text:
            run = self._banner(run, line, text)
        if "█" in text:
            found = _LOGO_MODEL.search(text)
            if found:
                run.model = run.model or found[1].strip()
        if "LLM engine" in text:
            run = self._engine(run, line, text)
        if line.level is None and (
            run.echoes.is_waiting or any(words in text for words in _ECHOES)
        ):
            self._echo(run, text)
        self._surroundings(run, text)
        if " : Using " in text:
            self._interface(run, text)
        if "GPU " in text or "CUDA_VISIBLE_DEVICES" in text:
            self._gpus(run, text)
        if run.release.is_open:
            run.release.feed(line)
        self._sizes(run, text)
        if "ccl==" in text or "NCCL version" in text:
            self._nccl(run, text)
        self._phase(run, line, text)
        return run

    def _banner(self, run: Run, line: Line, text: str) -> Run:
        found = _BANNER.search(text) or (_LOGO.search(text) if "█" in text else None)
        if found is not None:
            if run.has_banner or run.was_serving:
                run = self._start(line)
            run.release.banner(found[1])
            run.has_banner = True
            run.phase = Phase.STARTUP
        if "non-default args: {" in text:
            run.arguments.update(
                printed_arguments(text[:_MAX_ARGUMENTS_TEXT].partition("args: ")[2])
            )
        elif "args: Namespace(" in text:
            if run.arguments and not run.has_banner and run.echo is None:
                run = self._start(line)
            run.has_banner = True
            run.all_arguments = True
            shown = pairs(text[:_MAX_ARGUMENTS_TEXT].partition("Namespace(")[2])
            run.arguments.update(
                {
                    name: value
                    for name, value in shown.items()
                    if value not in (None, False, "", [])
                }
            )
        else:
            return run
        model = run.arguments.get("model_tag") or run.arguments.get("model")
        run.model = run.model or (model if isinstance(model, str) else None)
        run.phase = run.phase or Phase.STARTUP
        return run

    def _engine(self, run: Run, line: Line, text: str) -> Run:
        found = _ENGINE.search(text)
        if found is None:
            dumped = _DUMPED.search(text)
            if dumped is None:
                return run
            run.release.engine(dumped[2])
            run.engine = "v1"
            self._config(run, text[dumped.end() :])
            return run
        if run.was_serving:
            run = self._start(line)
        if found[2]:
            run.release.engine(found[2])
        run.engine = found[1].lower() if found[1] else run.engine or "v0"
        run.phase = Phase.STARTUP
        self._config(run, text[found.end() :])
        return run

    @staticmethod
    def _config(run: Run, text: str) -> None:
        for name, value in config_fields(text[:_MAX_ARGUMENTS_TEXT]).items():
            run.config.setdefault(name, value)
        model = run.config.get("model")
        run.model = run.model or (model if isinstance(model, str) else None)

    @staticmethod
    def _echo(run: Run, text: str) -> None:
        found = run.echoes.feed(text)
        if found is None or (run.has_banner and run.model != found.model):
            return
        run.echo = found
        if found.release:
            run.release.image(found.release)
        run.model = run.model or found.model
        for name, value in found.flags().items():
            run.arguments.setdefault(name, value)
        run.visible_gpus = found.visible_gpus() or run.visible_gpus

    @staticmethod
    def _surroundings(run: Run, text: str) -> None:
        """Where it runs, and where its ranks meet."""
        if text.startswith(SIGNS):
            run.platform.feed(text)
        elif DETECTED in text:
            run.platform.detect(text)
        if "MASTER_" in text or "init_method" in text or "--master" in text:
            run.meeting.feed(text)

    @staticmethod
    def _interface(run: Run, text: str) -> None:
        """The first interface that NCCL lists and that is no bridge, tunnel or loopback."""
        if run.interface is None and ("Bootstrap : " in text or "NET/" in text):
            names = _INTERFACE.findall(text[:2000])
            run.interface = next((one for one in names if not _VIRTUAL.match(one)), None)

    @staticmethod
    def _gpus(run: Run, text: str) -> None:
        """The devices that an environment dump, `nvidia-smi -L` or collect_env lists."""
        found = _VISIBLE.match(text)
        if found:
            run.visible_gpus = max(run.visible_gpus or 0, devices(found[1]) or 0) or None
            return
        found = _LISTED_GPU.match(text)
        if found:
            run.visible_gpus = max(run.visible_gpus or 0, whole(found[1]) + 1)

    @staticmethod
    def _sizes(run: Run, text: str) -> None:
        if "KV cache size: " in text:
            found = _KV_TOKENS.search(text)
            if found:
                run.kv_cache_tokens = whole(found[1].replace(",", ""))
        elif " blocks: " in text and run.kv_cache_tokens is None:
            found = _KV_BLOCKS.search(text)
            block = run.config.get("block_size")
            if found:
                run.kv_cache_tokens = whole(found[1]) * (block if isinstance(block, int) else 16)
        elif "world size " in text:
            found = _WORLD.search(text)
            if found:
                run.devices = max(run.devices or 0, min(whole(found[1]), 1_000_000))
        elif "orch" in text:
            found = _TORCH.search(text)
            if found:
                run.torch_version = run.torch_version or found[1]

    @staticmethod
    def _nccl(run: Run, text: str) -> None:
        found = _NCCL.search(text)
        if found:
            run.nccl_version = run.nccl_version or found[1]

    @staticmethod
    def _phase(run: Run, line: Line, text: str) -> None:
        if text.startswith(READY):
            if run.phase is Phase.SHUTDOWN and not text.startswith(STARTED):
                return
            run.phase = Phase.SERVING
            run.was_serving = True
            if text.startswith(STARTED):
                run.last_ready = line.number
        elif text.startswith(STOPPING):
            if run.phase is Phase.SERVING:
                run.phase = Phase.SHUTDOWN
        elif run.phase is None and text.startswith(STARTING):
            run.phase = Phase.STARTUP
