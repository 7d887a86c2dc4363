"""Meetings: where the ranks of a run are to meet, as the log names the master's address and port."""

from collections.abc import Mapping

from vllm_triage.expressions import expression
from vllm_triage.numbers import whole

_HOST = r"(?:\[[\da-fA-F:]{2,45}\]|[A-Za-z0-9][\w.-]{0,252})"
_INIT = expression(rf"init_method['\"]?[=:] ?['\"]?tcp://({_HOST}):(\d{{1,5}})\b")
_MASTER = expression(
    rf"(?:\bMASTER_(ADDR|PORT)['\"]?(?:=|: ?)|--master[-_](addr|port)[= ])['\"]?({_HOST})(?=['\",\s]|$)"
)
_LOOPBACK = expression(r"127\.|localhost$|\[?::1\]?$|0\.0\.0\.0$")

_MAX_PORT = 65535
_DEFAULT_PORT = 29501
"""That of vLLM's own `--master-port`."""


class Meeting:
    """The master's address and port, each as it was named first."""

    def __init__(self) -> None:
        self.host: str | None = None
        self.port: str | None = None

    def feed(self, text: str) -> None:
        """Take a line that holds `init_method`, `MASTER_` or `--master`."""
        found = _INIT.search(text)
        if found is not None:
            # On the loopback the ranks are of one machine, which has no other node to reach.
            if not _LOOPBACK.match(found[1]):
                self._take(found[1], found[2])
            return
        for variable, flag, value in _MASTER.findall(text[:4000]):
            if (variable or flag).lower() == "port":
                self._take(None, value if value.isdecimal() else None)
            elif not _LOOPBACK.match(value):
                self._take(value, None)

    def told(self, arguments: Mapping[str, object]) -> dict[str, str]:
        """What is known of it, by the arguments too."""
        host, port = arguments.get("master_addr"), arguments.get("master_port")
        if isinstance(host, str) and not _LOOPBACK.match(host):
            self._take(host, str(port or _DEFAULT_PORT))
        return {
            name: value
            for name, value in (("master_host", self.host), ("master_port", self.port))
            if value
        }

    def _take(self, host: str | None, port: str | None) -> None:
        self.host = self.host or host
        if port is not None and 0 < whole(port) <= _MAX_PORT:
            self.port = self.port or port
