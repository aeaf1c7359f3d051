"""The time of Spark for a host's packets among many, and for top talkers, beside the usual way without Tapline.

    GIGABYTES=20 RUNS=3 PEERS=1 FOLDER=/large TAPLINE=target/release/tapline python3 contrib/spark/tests/needle.py

Makes capture files of GIGABYTES (1 by default) and a store of them in FOLDER, which takes twice as much room. PEERS is the
number of runs of each peer, which take minutes (0 by default); peers need tshark, and dpkt:
`pip install --target target/python dpkt`. Answers must be equal, or it fails. Spark has two workers with a core each, and is
up before anything is measured. As root it empties the system's cache of files before each run. The time of the import is
told apart: a store that `tapline record` filled has none.

    needle    packets of one host, in one file    find() over the store          binaryFiles + dpkt, or a comparison of bytes
    talkers   octets of IP by source address      probe to Parquet, then Spark   tshark to CSV, then Spark
"""

import concurrent.futures
import io
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import cluster

GIGABYTES = float(os.environ.get("GIGABYTES", "1"))
RUNS = int(os.environ.get("RUNS", "3"))
PEERS = int(os.environ.get("PEERS", "0"))
# A file is read whole by binaryFiles: its size is kind to the peer.
FILE_BYTES = 128_000_000
RECIPE = "udp tcp size=90..1400 flows=5k walk=random order=random rate=17k".split()
PACKETS = FILE_BYTES // 582
SECONDS_APART = 11
# Each file has a network of its own.
FILES_MAX = 250


def missing():
    """Why nothing can be run here; None if all is there."""
    if PEERS and not shutil.which("tshark"):
        return "there is no tshark here"
    try:
        if PEERS:
            import dpkt  # noqa: F401
    except ImportError as error:
        return f"{error}: pip install --target {cluster.MODULES} dpkt"
    return cluster.missing()


def make(folder):
    """Files, each with hosts of its own, and a store of them; the needle is a host of the middle one."""
    files = []
    count = max(2, round(GIGABYTES * 1e9 / FILE_BYTES))
    if count > FILES_MAX:
        sys.exit(f"{count} files: each needs a network of its own, and there are {FILES_MAX}")
    for at in range(count):
        files.append(os.path.join(folder, "files", f"{at:05}.pcap"))
        start = cluster.FIRST + SECONDS_APART * at
        where = [f"src=10.{at}.0.0/16", "dst=172.16.0.0/24", f"seed={at}", f"start={start}"]
        cluster.tapline("generate", "-w", files[-1], *RECIPE, *where, f"count={PACKETS}")
    store = os.path.join(folder, "store")
    since = time.monotonic()
    cluster.tapline("store", "import", store, *files, "--segment", "256MiB")
    octets = sum(map(os.path.getsize, files))
    print(f"{len(files)} files, {octets / 1e9:.1f} GB, {len(files) * PACKETS} packets", end="; ")
    print(f"imported in {time.monotonic() - since:.1f} s", flush=True)
    middle = cluster.alone("capture", "-r", files[count // 2], "-c", "1", "--columns", "src")
    return files, store, middle.column("src")[0].as_py()


def needle_of_store(spark, store, host):
    find = cluster.tapline_spark.find
    found = find(spark, store, columns="length,src,dst", host=host, tapline=cluster.TAPLINE)
    return tuple(found.selectExpr("count(*)", "coalesce(sum(length), 0)").first())


def needle_of_dpkt(spark, files, host):
    address = socket.inet_aton(host)

    def packets(named):
        import dpkt

        for _, frame in dpkt.pcap.Reader(io.BytesIO(named[1])):
            ip = dpkt.ethernet.Ethernet(frame).data
            if isinstance(ip, dpkt.ip.IP) and address in (ip.src, ip.dst):
                yield len(frame)

    return of_files(spark, files, packets)


def needle_of_bytes(spark, files, host):
    """No dissection: right only where each packet is IPv4 behind Ethernet, as here."""
    address = socket.inet_aton(host)

    def packets(named):
        import dpkt

        for _, frame in dpkt.pcap.Reader(io.BytesIO(named[1])):
            if address == frame[26:30] or address == frame[30:34]:
                yield len(frame)

    return of_files(spark, files, packets)


def of_files(spark, files, packets):
    """Number and octets of the packets that are found in files."""
    found = spark.sparkContext.binaryFiles(os.path.dirname(files[0]), minPartitions=len(files)).flatMap(packets)
    return found.aggregate((0, 0), lambda sums, octets: (sums[0] + 1, sums[1] + octets), add)


def add(one, other):
    return one[0] + other[0], one[1] + other[1]


def talkers_of_parquet(spark, files, folder):
    lake = os.path.join(folder, "flows")
    shutil.rmtree(lake, ignore_errors=True)
    template = "flowStartMilliseconds,sourceIPv4Address,destinationIPv4Address,octetDeltaCount"

    def meter(file):
        cluster.tapline("probe", "-r", file, "--export", f"parquet:{lake}", "--template", template)

    with concurrent.futures.ThreadPoolExecutor(2) as workers:
        list(workers.map(meter, files))
    return top(spark.read.parquet(lake).groupBy("sourceIPv4Address").sum("octetDeltaCount"))


def talkers_of_tshark(spark, files, folder):
    lines = os.path.join(folder, "csv")
    shutil.rmtree(lines, ignore_errors=True)
    os.makedirs(lines)

    def dissect(file):
        words = ["tshark", "-n", "-r", file, "-T", "fields", "-E", "separator=,", "-e", "ip.src", "-e", "ip.len"]
        with open(os.path.join(lines, os.path.basename(file)), "wb") as out:
            subprocess.run(words, stdout=out, stderr=subprocess.DEVNULL, check=True)

    with concurrent.futures.ThreadPoolExecutor(2) as workers:
        list(workers.map(dissect, files))
    return top(spark.read.schema("src string, octets bigint").csv(lines).groupBy("src").sum("octets"))


def top(rows):
    address, octets = rows.columns
    return [tuple(row) for row in rows.orderBy(rows[octets].desc(), rows[address]).limit(10).collect()]


def measure(name, runs, call):
    """The median of the seconds, and the answer."""
    seconds, answers = [], []
    for _ in range(runs):
        empty_cache()
        start = time.monotonic()
        answers.append(call())
        seconds.append(time.monotonic() - start)
    if any(answer != answers[0] for answer in answers):
        sys.exit(f"{name}: answers differ: {answers}")
    print(f"{name:<30} median {statistics.median(seconds):8.2f} s of {[round(one, 2) for one in seconds]}", flush=True)
    return statistics.median(seconds), answers[0]


def empty_cache():
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as order:
            order.write("3")
    except OSError:
        pass  # all runs have the cache, then


def main():
    why = missing()
    if why:
        return print(f"skipped: {why}")
    with tempfile.TemporaryDirectory(dir=os.environ.get("FOLDER")) as folder:
        os.mkdir(os.path.join(folder, "files"))
        files, store, host = make(folder)
        spark = cluster.start_spark(folder, 3072)
        needle_of_store(spark, store, "192.0.2.1")
        needles = {"dpkt": needle_of_dpkt, "comparison of bytes": needle_of_bytes}
        needles = {name: lambda call=call: call(spark, files, host) for name, call in needles.items()}
        compare("needle", lambda: needle_of_store(spark, store, host), needles)
        talkers = {"tshark, CSV": lambda: talkers_of_tshark(spark, files, folder)}
        compare("talkers", lambda: talkers_of_parquet(spark, files, folder), talkers)
        spark.stop()


def compare(question, ours, peers):
    seconds, answer = measure(f"{question}, tapline", RUNS, ours)
    print(f"  {answer}")
    if not answer or not answer[0]:
        sys.exit(f"{question}: nothing was found")
    for name, call in peers.items() if PEERS else []:
        of_peer, other = measure(f"{question}, {name}", PEERS, call)
        if other != answer:
            sys.exit(f"{question}: answers differ: {answer} and {other}")
        print(f"{question}: {of_peer / seconds:.1f} times as fast as {name}, the same answer", flush=True)


if __name__ == "__main__":
    main()
