#!/usr/bin/env python3
"""Processor time of tcpdump on our libpcap.so beside the system's: `scripts/bench-libpcap.py LIBRARY CAPTURE...`.

A round runs tcpdump over all captures once on each library, one after the other and in turn first; its figure is the quotient of the two sums of user and
system time. ROUNDS is their number, ONLY="write;filter, write" names workloads. What is reported is the median over the rounds of that quotient, and of the times. Output goes to /dev/null, so that a terminal costs nothing.

A capture on which tcpdump ends with another exit status on one library than on the other ends the measurement: the two did not do the same work. Nor did they
where it could not be started, or ended by a signal.
"""

import os
import statistics
import sys
import tempfile

ROUNDS = int(os.environ.get("ROUNDS", "15"))
SONAME = "libpcap.so.0.8"
# What a shell says of a program that it cannot find; tcpdump has no such status.
NOT_STARTED = 127
WORKLOADS = {
    "print": ["-nn"],
    "print -e -vv": ["-nn", "-e", "-vv"],
    "filter": ["-nn", "tcp port 80 or udp port 53"],
    "filter, write": ["-w", "/dev/null", "tcp port 80 or udp port 53"],
    "write": ["-w", "/dev/null"],
}


def cost(environment, options, captures):
    """User and system time in seconds of one run over each capture, and their exit statuses."""
    total, statuses = 0.0, []
    null = os.open(os.devnull, os.O_RDWR)
    for capture in captures:
        # A filter stands last.
        split = [option for option in options if option.startswith("-") or option.startswith("/")]
        rest = options[len(split):]
        arguments = ["tcpdump", *split, "-r", capture, *rest]
        child = os.fork()
        if child == 0:
            try:
                for descriptor in (0, 1, 2):
                    os.dup2(null, descriptor)
                os.execvpe("tcpdump", arguments, environment)
            finally:
                os._exit(NOT_STARTED)
        _, status, usage = os.wait4(child, 0)
        statuses.append(os.waitstatus_to_exitcode(status))
        total += usage.ru_utime + usage.ru_stime
    os.close(null)
    return total, statuses


def compare(captures, system, ours):
    """Ends the measurement if the libraries did not do the same."""
    for capture, theirs, mine in zip(captures, system, ours):
        if theirs != mine or theirs < 0 or theirs == NOT_STARTED:
            sys.exit(f"{capture}: tcpdump's exit status is {theirs} on the system's library and {mine} on ours")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    library, captures = os.path.abspath(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(library, os.path.join(folder, SONAME))
        system = dict(os.environ)
        ours = dict(os.environ, LD_LIBRARY_PATH=folder)
        print(f"{len(captures)} captures, {ROUNDS} rounds; seconds of processor time for a round, medians")
        print(f"{'workload':<16}{'system':>9}{'ours':>9}{'ratio':>8}  quartiles of the ratio")
        wanted = os.environ.get("ONLY", ";".join(WORKLOADS)).split(";")
        for name, options in WORKLOADS.items():
            if name not in wanted:
                continue
            ratios, times = [], ([], [])
            for number in range(ROUNDS):
                order = [0, 1] if number % 2 == 0 else [1, 0]
                pair, statuses = [0.0, 0.0], [[], []]
                for which in order:
                    pair[which], statuses[which] = cost((system, ours)[which], options, captures)
                    times[which].append(pair[which])
                compare(captures, *statuses)
                ratios.append(pair[1] / pair[0])
            low, middle, high = statistics.quantiles(ratios, n=4)
            seconds = [statistics.median(taken) for taken in times]
            print(f"{name:<16}{seconds[0]:>9.3f}{seconds[1]:>9.3f}{middle:>8.2f}  {low:.2f} to {high:.2f}")


main()
