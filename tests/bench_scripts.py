"""Programs that a user would write or install instead; `python bench_scripts.py NAME LOG` runs one.

Nothing of ours is imported, so that what they take to start is theirs.
"""

import sys
from collections.abc import Callable, Mapping

WORDS = r"Traceback|Error|Exception|CUDA|NCCL|out of memory|Killed|FATAL"
"""What a user would look for."""


def _regex(log: str) -> int:
    import regex

    search = regex.compile(WORDS).search
    with open(log, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return sum(search(line) is not None for line in file)


def _drain3(log: str) -> int:
    from drain3 import TemplateMiner
    from drain3.template_miner_config import TemplateMinerConfig

    miner = TemplateMiner(config=TemplateMinerConfig())
    with open(log, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        for line in file:
            miner.add_log_message(line.rstrip("\n"))
    return len(miner.drain.clusters)


def _searchkit(log: str) -> int:
    from searchkit import FileSearcher, SearchDef

    searcher = FileSearcher()
    searcher.add(SearchDef(f".*(?:{WORDS})", tag="fault"), log)
    return len(searcher.run().find_by_tag("fault"))


_SCRIPTS: Mapping[str, Callable[[str], int]] = {
    "regex": _regex,
    "drain3": _drain3,
    "searchkit": _searchkit,
}

if __name__ == "__main__":
    print(_SCRIPTS[sys.argv[1]](sys.argv[2]))  # noqa: T201
