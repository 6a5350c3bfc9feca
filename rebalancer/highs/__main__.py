# SPDX-License-Identifier: Apache-2.0
"""The child process: reads problems from stdin, writes answers to stdout, ends with its parent.

python -m rebalancer.highs MEMORY_BYTES CPU_SECONDS
"""

from __future__ import annotations

import resource
import signal
import sys

from rebalancer.highs.frames import decode_problem, encode, read_frame, write_frame


def main() -> None:
    memory_bytes, cpu_s = (int(argument) for argument in sys.argv[1:3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too; its parent decides
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # Imported under the limit, so that everything counts.
    from rebalancer.highs.solve import solve

    while (frame := read_frame(sys.stdin.buffer)) is not None:
        # Not a limit of the search, which counts nodes: it ends a solver that never returns.
        used = resource.getrusage(resource.RUSAGE_SELF)
        most_s = int(used.ru_utime + used.ru_stime) + cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (most_s, resource.RLIM_INFINITY))
        write_frame(sys.stdout.buffer, encode(solve(decode_problem(frame))))


if __name__ == "__main__":
    main()
