"""Rows into a broker: processor time of the sender and of the broker, and bytes on the broker's disk, interleaved.

    RUNS=3 python3 contrib/kafka/tests/rates.py

TAPLINE is a release build with the feature `kafka`, KAFKA_LIBS the folder of Kafka's jars (broker.py). pmacctd is measured if
it is there, goflow2 if GOFLOW2 names it. Tapline and pmacctd meter the same file of a million packets; goflow2 collects the
records of IPFIX that Tapline makes of them. Each has its own fields: those of Tapline's default are more than the others'.
"""

import glob
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time

import broker as kafka

RUNS = int(os.environ.get("RUNS", "3"))
GOFLOW2 = os.environ.get("GOFLOW2", "goflow2")
RECIPE = "udp tcp ip order=random walk=random src=10.0.0.0/12 dst=10.64.0.0-10.64.255.255 dport=80,443,53,9 size=60"
FLOWS = "flows=500000 count=1000000 segments=3 rate=400k"
# No flow ends before the file does.
PROBE = ["--json", "--active-timeout", "3600", "--idle-timeout", "3600"]
# What goflow2's messages have and pmacctd writes here, and no more.
FEW = (
    "flowStartNanoseconds,flowEndNanoseconds,sourceIPv4Address,sourceTransportPort,destinationIPv4Address,"
    "destinationTransportPort,protocolIdentifier,octetDeltaCount,packetDeltaCount,tcpControlBits,ipClassOfService"
)
TAPLINES = {
    "tapline json": ("", ()),
    "tapline goflow": ("?format=goflow", ()),
    "tapline native, zstd": ("?format=native&compress=zstd", ()),
    "tapline native, zstd, few fields": ("?format=native&compress=zstd", ("--template", FEW)),
    "tapline json, zstd, few fields": ("?compress=zstd", ("--template", FEW)),
}


def of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def of_broker(broker):
    with open(f"/proc/{broker.process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def probe(trace, *words):
    words = [kafka.TAPLINE, "probe", "-r", trace, *PROBE, *words]
    return json.loads(subprocess.run(words, capture_output=True, check=True).stdout.splitlines()[0])["results"]


def tapline(bench, topic, settings, more):
    told = probe(bench.trace, "--export", f"kafka://{bench.broker.address}/{topic}{settings}", *more)["batches0"][0]
    assert told["acknowledged"] == told["flows"], told
    return told["records"]


def pmacctd(bench, topic):
    host, port = bench.broker.address.split(":")
    settings, client = os.path.join(bench.folder, "pmacctd.conf"), os.path.join(bench.folder, "rdkafka.conf")
    with open(client, "w") as out:
        out.write("global, enable.idempotence, true\nglobal, compression.codec, lz4\ntopic, acks, all\n")
    with open(settings, "w") as out:
        out.write(
            f"daemonize: false\nplugins: kafka\npcap_savefile: {bench.trace}\nkafka_broker_host: {host}\n"
            f"kafka_broker_port: {port}\nkafka_topic: {topic}\nkafka_output: json\nkafka_refresh_time: 3600\n"
            "kafka_cache_entries: 2000003\nkafka_multi_values: 1000\nplugin_buffer_size: 10240\n"
            f"plugin_pipe_size: 536870912\nkafka_config_file: {client}\n"
            "aggregate: src_host,dst_host,src_port,dst_port,proto,tos,tcpflags,timestamp_start,timestamp_end\n"
        )
    subprocess.run(["pmacctd", "-f", settings], capture_output=True, check=False)
    return bench.text(topic).count(b'"event_type"')


def goflow2(bench, topic, form):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    words = [GOFLOW2, "-listen", f"netflow://127.0.0.1:{port}", "-addr", "127.0.0.1:0", "-format", form]
    words += ["-transport", "kafka", "-transport.kafka.brokers", bench.broker.address, "-transport.kafka.topic", topic]
    words += ["-transport.kafka.compression", "lz4"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(2)
    before = of_children()
    # As many datagrams a second as it takes without loss here.
    probe(bench.trace, "--rate", "2500", "--export", f"udp://127.0.0.1:{port}")
    bench.other += of_children() - before
    size = -1
    while size != bench.size(topic):
        size = bench.size(topic)
        time.sleep(2)
    process.send_signal(signal.SIGTERM)
    process.wait()
    return bench.text(topic, "%s\n" if form == "json" else "\nROW").count(b'"type"' if form == "json" else b"ROW")


class Bench:
    def __init__(self, folder):
        # Processor time of what is started beside the sender.
        self.folder, self.trace, self.other = folder, os.path.join(folder, "trace.pcap"), 0
        words = [kafka.TAPLINE, "generate", "-w", self.trace, *RECIPE.split(), *FLOWS.split()]
        subprocess.run(words, check=True, capture_output=True)
        self.broker = kafka.Broker(folder)
        self.broker.start()

    def size(self, topic):
        return sum(os.path.getsize(file) for file in glob.glob(f"{self.folder}/log/{topic}-*/*.log"))

    def text(self, topic, form="%s\n"):
        words = ["kcat", "-C", "-b", self.broker.address, "-t", topic, "-e", "-q", "-o", "beginning", "-f", form]
        before = of_children()
        text = subprocess.run(words, capture_output=True, check=True).stdout
        self.other += of_children() - before
        return text

    def run(self, name, number):
        topic = f"{''.join(filter(str.isalnum, name))}{number}"
        self.broker.make(topic)
        self.other, sender, broker = 0, of_children(), of_broker(self.broker)
        if name in TAPLINES:
            rows = tapline(self, topic, *TAPLINES[name])
        elif name == "pmacctd json":
            rows = pmacctd(self, topic)
        else:
            rows = goflow2(self, topic, name.split()[1])
        sender = of_children() - sender - self.other
        return rows, sender * 1e9 / max(rows, 1), (of_broker(self.broker) - broker) * 1e9 / max(rows, 1), self.size(topic) / max(rows, 1)


def main():
    names = list(TAPLINES)
    names += ["pmacctd json"] if shutil.which("pmacctd") else []
    names += ["goflow2 json", "goflow2 bin"] if shutil.which(GOFLOW2) else []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        seen = {name: [] for name in names}
        try:
            for number in range(RUNS):
                for name in names:
                    seen[name].append(bench.run(name, number))
        finally:
            bench.broker.kill()
        print(f"{'medians of ' + str(RUNS):34} rows      ns a row   of the broker   bytes a row")
        for name, runs in seen.items():
            rows, sender, of_the_broker, size = (statistics.median(column) for column in zip(*runs))
            least = min(run[0] for run in runs)
            lost = f"   {least} at least" if least != rows else ""
            print(f"{name:34} {rows:9.0f} {sender:8.0f} {of_the_broker:12.0f} {size:14.1f}{lost}")


if __name__ == "__main__":
    why = kafka.missing()
    print(f"skipped: {why}") if why else main()
