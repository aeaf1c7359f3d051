"""Brokers that go away, and brokers that stand still: measured on live traffic, and nothing may be lost.

    python3 contrib/kafka/tests/outage.py away    # a broker is killed for AWAY s, at RATE rows a second
    python3 contrib/kafka/tests/outage.py stall   # packets that a capture loses while its broker stands still

Needs root: all of it runs in a network namespace of its own. TAPLINE is a release build with the feature `kafka`, KAFKA_LIBS
the folder of Kafka's jars (broker.py), FORMAT what stands behind the topic's name.
"""

import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import broker as kafka

AWAY = int(os.environ.get("AWAY", "60"))
RATE = int(os.environ.get("RATE", "200000"))
RUNS = int(os.environ.get("RUNS", "3"))
FORMAT = os.environ.get("FORMAT", "?format=native&compress=zstd&key=none")
# Seconds before the broker goes, and the longest time to catch up.
BEFORE, AFTER = 10, 180
# Flows of one packet each; none comes again before it has ended.
FLOWS = ["udp", "ip", "src=10.0.0.0/9", "dst=10.128.0.0-10.128.255.255", "dport=53,443", "size=80"]


def generate(rate, seconds, flows):
    words = [kafka.TAPLINE, "generate", "-i", "near0", *FLOWS, f"flows={flows}", f"rate={rate}", f"count={rate * seconds}"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(0.5)
    if process.poll() is not None:
        raise RuntimeError(process.stderr.read().decode())
    return process


def probe(*words):
    words = [kafka.TAPLINE, "probe", "-i", "far0", "--json", "--idle-timeout", "1", "--flows-max", "2M", *words]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def end(process):
    """Ends a probe; its counters of batches, if any, and its account."""
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    *results, account = (json.loads(line) for line in out.splitlines())
    account = account["account"]
    assert account["balanced"], account
    return (results[-1]["results"]["batches0"][0] if results and "batches0" in results[-1]["results"] else None), account


def on_topic(broker, topic):
    """Blocks of a topic by their ids, with their rows; and how many messages came twice."""
    words = ["kcat", "-C", "-b", broker.address, "-t", topic, "-e", "-q", "-o", "beginning", "-f", "%h\n"]
    blocks, messages = {}, 0
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            headers = dict(header.split("=", 1) for header in line.strip().split(","))
            blocks[headers["tapline-batch"]] = int(headers["tapline-rows"])
            messages += 1
    return blocks, messages - len(blocks)


def away(folder, broker):
    broker.make("away")
    spool = os.path.join(folder, "spool")
    process = probe("--export", f"kafka://{broker.address}/away{FORMAT}", "--spool", f"{spool},16G")
    time.sleep(2)
    # A million flows in turn: each has ended before it comes again.
    traffic = generate(RATE, BEFORE + AWAY + AFTER, 1_000_000)
    time.sleep(BEFORE)
    broker.kill()
    time.sleep(AWAY)
    blocks = lambda: [path for path in glob.glob(f"{spool}/*/*/*") if not path.endswith("/lock")]
    kept = len(blocks()), sum(os.path.getsize(path) for path in blocks())
    start = time.monotonic()
    broker.start()
    started = time.monotonic() - start
    while blocks() and time.monotonic() - start < AFTER - 10:
        time.sleep(0.2)
    caught_up = time.monotonic() - start
    traffic.send_signal(signal.SIGINT)
    traffic.wait()
    told, account = end(process)
    blocks, twice = on_topic(broker, "away")
    lost = {name: value for name, value in told.items() if name.startswith("lost") and value}
    assert sum(blocks.values()) == told["acknowledged"] and told["acknowledged"] + told["spooled"] == told["flows"] or lost
    print(
        f"away {AWAY} s at {RATE} rows/s: {told['flows']} flows, {told['acknowledged']} acknowledged, {told['spooled']} spooled, "
        f"lost {lost or 0}; {sum(blocks.values())} rows in {len(blocks)} blocks of the topic, {twice} messages twice"
    )
    print(
        f"the spool had {kept[0]} blocks, {kept[1] / 1e6:.0f} MB; the broker started in {started:.1f} s, "
        f"and the spool was empty {caught_up:.1f} s after that began; packets lost by the capture: {account['lost']}"
    )


def stall(folder, broker):
    """Interleaved: no export, a broker that answers, a broker that is stopped."""
    broker.make("stall")
    kinds = {"no export": (), "broker answers": ("--export",), "broker stands still": ("--export",)}
    lost = {kind: [] for kind in kinds}
    for run in range(RUNS):
        for kind, export in kinds.items():
            spool = os.path.join(folder, f"spool{run}{len(kind)}")
            words = ["--export", f"kafka://{broker.address}/stall{FORMAT}", "--spool", f"{spool},16G"] if export else []
            process = probe(*words, "--patience", "1")
            time.sleep(2)
            if kind == "broker stands still":
                broker.process.send_signal(signal.SIGSTOP)
            generate(RATE, 20, 1_000_000).wait()
            time.sleep(2)
            told, account = end(process)
            broker.process.send_signal(signal.SIGCONT)
            lost[kind].append(account["lost"])
            kept = f", {told['acknowledged']} acknowledged, {told['spooled']} spooled" if told else ""
            assert not told or told["acknowledged"] + told["spooled"] == told["flows"], told
            print(f"{kind}: {account['delivered']} packets, {account['lost']} lost{kept}", flush=True)
    print(", ".join(f"{kind}: {sorted(all)[len(all) // 2]} lost at the median" for kind, all in lost.items()))


def main():
    kinds = {"away": away, "stall": stall}
    if len(sys.argv) != 2 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    if "TAPLINE_NAMESPACE" not in os.environ:
        # The broker looks its host's name up, for which there is no server in there.
        words = ["unshare", "--net", "--uts", sys.executable, *sys.argv]
        sys.exit(subprocess.run(words, env={**os.environ, "TAPLINE_NAMESPACE": "1"}).returncode)
    subprocess.run(["hostname", "localhost"], check=True)
    # librdkafka resolves 127.0.0.1 where another interface has an address.
    setup = "link set lo up;link add home0 type veth peer name home1;addr add 192.0.2.1/32 dev home0;link set home0 up;"
    setup += "link add near0 type veth peer name far0;link set near0 up;link set far0 up"
    for words in setup.split(";"):
        subprocess.run(["ip", *words.split()], check=True)
    why = kafka.missing()
    if why:
        sys.exit(f"skipped: {why}")
    with tempfile.TemporaryDirectory() as folder:
        broker = kafka.Broker(folder)
        broker.start()
        try:
            kinds[sys.argv[1]](folder, broker)
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
