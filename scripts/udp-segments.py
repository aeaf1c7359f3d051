"""The kernel's part of exporting flows by UDP: several messages a call (UDP_SEGMENT) beside one a call.

    TAPLINE=target/release/tapline FLOWS=1000000 RUNS=5 python3 scripts/udp-segments.py

Meters a file of FLOWS flows, and exports them to a socket of loopback that another process reads: as they are; with a
library before it that refuses the option, so that each message is a call; and to nothing, whose system time is that of
reading, metering and making lines. Runs take turns; figures are medians of the system time of the process, without the
last one's. Both ways must send as many messages. Needs gcc, and a program that links the C library dynamically.
"""

import multiprocessing
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TAPLINE = os.environ.get("TAPLINE", os.path.join(ROOT, "target", "release", "tapline"))
FLOWS = int(os.environ.get("FLOWS", "1000000"))
RUNS = int(os.environ.get("RUNS", "5"))
SO_RCVBUFFORCE = 33
# SOL_UDP and UDP_SEGMENT are 17 and 103.
REFUSES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
int setsockopt(int socket, int level, int name, const void *value, socklen_t length) {
    int (*next)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");
    if (level == 17 && name == 103) {
        FILE *mark = fopen(getenv("REFUSED"), "a");
        if (mark) fclose(mark);
        errno = ENOPROTOOPT;
        return -1;
    }
    return next(socket, level, name, value, length);
}
"""


def receive(receiver, count):
    while True:
        receiver.recv(65536)
        count.value += 1


def main():
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
    except OSError:
        sys.exit("the receiver needs a large buffer: run it as root")
    receiver.bind(("127.0.0.1", 0))
    to = f"udp://127.0.0.1:{receiver.getsockname()[1]}"
    count = multiprocessing.Value("q", 0, lock=False)
    multiprocessing.Process(target=receive, args=(receiver, count), daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        trace, library, mark = (os.path.join(folder, name) for name in ("a.pcap", "refuses.so", "refused"))
        recipe = f"udp flows={FLOWS} count={FLOWS} rate=1M size=100 walk=random dst=172.16.0.0/16".split()
        subprocess.run([TAPLINE, "generate", "-w", trace, *recipe], check=True, capture_output=True)
        words = ["gcc", "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", library, "-ldl"]
        subprocess.run(words, input=REFUSES.encode(), check=True)
        ways = {"segments": (to, {}), "no export": ("json:/dev/null", {})}
        ways["a call each"] = (to, {"LD_PRELOAD": library, "REFUSED": mark})
        seen = {way: [] for way in ways}
        for _ in range(RUNS):
            for way, (where, environment) in ways.items():
                seen[way].append(run(trace, where, environment, count))
        if not os.path.exists(mark):
            sys.exit("the option was never asked for: a static program, or one that sends no segments")
    kernel = {way: statistics.median(system for system, _ in runs) for way, runs in seen.items()}
    messages = {way: {sent for _, sent in runs} for way, runs in seen.items()}
    if messages["segments"] != messages["a call each"]:
        sys.exit(f"messages differ: {messages}")
    for way, seconds in kernel.items():
        print(f"{way:<12} {seconds:.3f} s of the system, messages {sorted(messages[way])}")
    exporting = [kernel[way] - kernel["no export"] for way in ("segments", "a call each")]
    print(f"of exporting: {exporting[0]:.3f} and {exporting[1]:.3f} s: {exporting[0] / exporting[1]:.2f} of it")


def run(trace, where, environment, count):
    """System time of a run, and how many messages came."""
    words = [TAPLINE, "probe", "-r", trace, "--json", "--idle-timeout", "3600", "--active-timeout", "3600"]
    words += ["--export", where]
    before, earlier = resource.getrusage(resource.RUSAGE_CHILDREN).ru_stime, count.value
    subprocess.run(words, env=os.environ | environment, check=True, capture_output=True)
    system, last = resource.getrusage(resource.RUSAGE_CHILDREN).ru_stime - before, -1
    while last != count.value:
        last = count.value
        time.sleep(0.3)
    return system, last - earlier


if __name__ == "__main__":
    main()
