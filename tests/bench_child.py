"""Runs one command and prints what it took; a process of its own, so that nothing of the bench counts.

`python bench_child.py FILE COMMAND...`: the command reads nothing, its errors go to FILE and
its output to another file that is thrown away (with `/dev/null` grep ends at its first hit,
whatever it is to count). Prints seconds on the clock, seconds of processors, bytes of
memory at the peak of its largest process, exit code.
"""

import os
import sys
import tempfile
import time


def main() -> None:
    errors, *command = sys.argv[1:]
    nothing = os.open(os.devnull, os.O_RDONLY)
    told = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    output, path = tempfile.mkstemp()
    os.unlink(path)  # noqa: PTH108
    start = time.perf_counter()
    child = os.fork()
    if not child:
        try:
            os.dup2(nothing, 0)
            os.dup2(output, 1)
            os.dup2(told, 2)
            os.execvp(command[0], command)
        except OSError as error:
            os.write(told, str(error).encode())
        os._exit(127)
    _, status, used = os.wait4(child, 0)
    wall = time.perf_counter() - start
    code = os.waitstatus_to_exitcode(status)
    # Of the child and the children that it has waited for.
    print(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, code)  # noqa: T201


if __name__ == "__main__":
    main()
