"""Flows on a real broker of Kafka: rows are those of a file, and none is lost while the broker is killed.

    scripts/test-tools.sh cluster; make test-cluster

TAPLINE is the program (target/debug/tapline by default, with the feature `kafka`), KAFKA_LIBS the folder of Kafka's jars,
KILLS how often the broker is killed. Without Java, kcat or the jars it says `skipped: why` and passes.
"""

import collections
import glob
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
TAPLINE = os.environ.get("TAPLINE", os.path.join(TARGET, "debug", "tapline"))
LIBS = os.environ.get("KAFKA_LIBS", os.path.join(TARGET, "kafka"))
KILLS = int(os.environ.get("KILLS", "10"))
SEED = int(os.environ.get("SEED", "1"))
RECIPE = "udp tcp ip ip6 size=80..900 flows=20k order=random rate=20k count=60k seed=7".split()
# A broker under load needs a while; without an end it would hang a machine of tests.
START_TIME = 120
# Blocks in the spool with which a run lets the broker live.
SPOOLED_MAX = 5_000


def missing():
    """Why nothing can be run here; None if all is there."""
    for program in ("java", "kcat"):
        if not shutil.which(program):
            return f"there is no {program} here"
    if not glob.glob(os.path.join(LIBS, "kafka-server-*.jar")):
        return f"Kafka is not in {LIBS}: scripts/test-tools.sh cluster fetches it with Maven"
    if not os.path.exists(TAPLINE):
        return f"{TAPLINE} is not built"
    return None


def ports(count):
    """Ports that the system chooses. A broker that is killed comes back on its own."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    numbers = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return numbers


class Broker:
    """One node, broker and controller at once (KRaft)."""

    # Further words for the making of its storage.
    FORMAT = ()

    def __init__(self, folder):
        self.folder, self.process = folder, None
        self.port, self.control = ports(2)
        self.address = f"127.0.0.1:{self.port}"
        self.configure(True)
        self.java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", self.file, *self.FORMAT, wait=True)

    def configure(self, makes_topics):
        self.file = os.path.join(self.folder, "server.properties")
        with open(self.file, "w") as out:
            out.write(
                "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
                f"controller.quorum.voters=1@127.0.0.1:{self.control}\n"
                f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self.control}\n"
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
                f"log.dirs={self.folder}/log\nnum.partitions=4\noffsets.topic.replication.factor=1\n"
                f"auto.create.topics.enable={str(makes_topics).lower()}\n"
            )

    def java(self, *words, wait=False):
        words = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", os.path.join(LIBS, "*"), *words]
        name = os.path.join(self.folder, "java.log")
        with open(name, "ab") as out:
            process = subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=self.folder)
        if wait and process.wait():
            with open(name, errors="replace") as log:
                raise RuntimeError(log.read()[-2000:])
        return process

    def start(self):
        self.process = self.java("kafka.Kafka", self.file)
        until = time.monotonic() + START_TIME
        while subprocess.run(["kcat", "-b", self.address, "-L", "-m", "1"], capture_output=True).returncode:
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the broker has not started: {self.folder}/java.log")

    def make(self, topic):
        """A client that asks for a topic has the broker make it; tapline makes none."""
        words = ["kcat", "-b", self.address, "-L", "-t", topic, "-m", "5", "-X", "allow.auto.create.topics=true"]
        until = time.monotonic() + START_TIME
        while b"partition 0, leader 1" not in subprocess.run(words, capture_output=True).stdout:
            if time.monotonic() > until:
                raise RuntimeError(f"the topic {topic} was not made")
            time.sleep(0.2)

    def kill(self):
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def messages(broker, topic, with_places=False):
    """The messages of a topic: headers and rows, and where they are asked for, partition and key."""
    words = ["kcat", "-C", "-b", broker.address, "-t", topic, "-e", "-q", "-o", "beginning", "-f", "%S %p %k %h\n%s"]
    text, at = subprocess.run(words, capture_output=True, check=True, timeout=3 * START_TIME).stdout, 0
    while at < len(text):
        end = text.index(b"\n", at)
        size, partition, key, headers = text[at:end].decode().split(" ", 3)
        at = end + 1 + int(size)
        found = dict(header.split("=", 1) for header in headers.split(",")), text[end + 1 : at]
        yield (*found, int(partition), key) if with_places else found


def probe(file, *words):
    """A run of the program; its counters of batches."""
    process = start_probe(file, *words)
    return counters(process)


def start_probe(file, *words):
    words = [TAPLINE, "probe", "-r", file, "--json", *words]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def counters(process):
    out, errors = process.communicate(timeout=2 * START_TIME)
    if process.returncode:
        raise RuntimeError(errors.decode())
    results, account = (json.loads(line) for line in out.splitlines())
    assert account["account"]["balanced"], out
    return results["results"]["batches0"][0]


def sums(lines):
    rows = [json.loads(line) for line in lines]
    return len(rows), *(sum(row[name] for row in rows) for name in ("packetDeltaCount", "octetDeltaCount"))


class Topic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.file = os.path.join(cls.folder.name, "a.pcap")
        subprocess.run([TAPLINE, "generate", "-w", cls.file, *RECIPE], check=True, capture_output=True)
        rows = os.path.join(cls.folder.name, "a.json")
        subprocess.run([TAPLINE, "probe", "-r", cls.file, "--export", f"json:{rows}"], check=True, capture_output=True)
        with open(rows, "rb") as lines:
            cls.rows = lines.read().splitlines()
        cls.broker = Broker(cls.folder.name)
        cls.broker.start()

    @classmethod
    def tearDownClass(cls):
        cls.broker.kill()
        cls.folder.cleanup()

    def to(self, topic, settings=""):
        return f"kafka://{self.broker.address}/{topic}{settings}"

    def test_rows_are_those_of_a_file(self):
        for settings in ("", "?compress=zstd&key=none"):
            topic = f"rows{len(settings)}"
            self.broker.make(topic)
            told = probe(self.file, "--export", self.to(topic, settings), "--sensor", "s1", "--batch-rows", "1000")
            found = list(messages(self.broker, topic))
            lines = [line for _, rows in found for line in rows.splitlines()]
            self.assertEqual(collections.Counter(lines), collections.Counter(self.rows))
            self.assertEqual(sums(lines), sums(self.rows))
            self.assertEqual(told["acknowledged"], sum(int(headers["tapline-flows"]) for headers, _ in found))
            for headers, rows in found:
                self.assertEqual((int(headers["tapline-rows"]), headers["tapline-format"]), (rows.count(b"\n"), "json"))
                self.assertRegex(headers["tapline-batch"], r"^s1-\d+-\d+$")
            print(f"{topic}: {len(found)} messages, rows, packets and octets {sums(lines)}")

    def test_a_flow_of_two_sensors_is_in_one_partition(self):
        self.broker.make("by-flow")
        for sensor in ("s1", "s2"):
            words = ["--sensor", sensor, "--batch-rows", "2000", "--idle-timeout", "1"]
            probe(self.file, "--export", self.to("by-flow", "?key=flow"), *words)
        partitions, keys, rows = collections.defaultdict(set), collections.defaultdict(set), 0
        for headers, lines, partition, key in messages(self.broker, "by-flow", with_places=True):
            keys[key].add(int(headers["tapline-batch"].rsplit("-", 1)[1]) % 16)
            for line in lines.splitlines():
                row = json.loads(line)
                partitions[row["communityId"]].add(partition)
                rows += 1
        self.assertEqual({len(found) for found in partitions.values()}, {1})
        self.assertEqual(len(keys), 16)
        self.assertEqual(sorted(number for found in keys.values() for number in found), list(range(16)))
        spread = collections.Counter(partition for found in partitions.values() for partition in found)
        self.assertEqual(len(spread), 4)
        self.assertLess(max(spread.values()), 1.2 * min(spread.values()))
        self.assertGreater(rows, 2 * len(self.rows), "flows that have several records")

    def test_blocks_of_clickhouse_arrive_whole(self):
        self.broker.make("native")
        probe(self.file, "--export", self.to("native", "?format=native"), "--batch-rows", "100000")
        found = list(messages(self.broker, "native"))
        self.assertEqual(sum(int(headers["tapline-rows"]) for headers, _ in found), len(self.rows))
        self.assertLess(max(len(rows) for _, rows in found), 1_000_000)

    def test_a_topic_that_is_not_there_is_told(self):
        self.broker.kill()
        self.broker.configure(False)
        self.broker.start()
        try:
            with self.assertRaisesRegex(RuntimeError, "has no topic `nosuch`"):
                probe(self.file, "--export", self.to("nosuch"))
        finally:
            self.broker.kill()
            self.broker.configure(True)
            self.broker.start()

    def test_no_row_is_lost_while_the_broker_is_killed(self):
        chance = random.Random(SEED)
        self.broker.make("kills")
        spool = os.path.join(self.folder.name, "spool")
        words = ["--export", self.to("kills", "?key=none"), "--spool", f"{spool},1G", "--batch-rows", "50"]
        runs = collections.Counter()
        for kill in range(KILLS):
            process = start_probe(self.file, *words)
            time.sleep(chance.uniform(0.2, 2))
            self.broker.kill()
            self.broker.start()
            self.count(runs, counters(process))
            # A spool that only grows is full in the end: that is a loss, told and counted, and not what is tested here.
            if len(self.blocks_in(spool)) > SPOOLED_MAX:
                self.count(runs, probe(self.file, *words, "--patience", "120"))
            if sys.stderr.isatty() or kill % 10 == 9:
                print(f"{kill + 1} kills, {len(self.blocks_in(spool))} blocks in the spool", file=sys.stderr, flush=True)
        while self.blocks_in(spool) and runs["runs"] < 2 * KILLS + 10:
            self.count(runs, probe(self.file, *words, "--patience", "120"))
        self.check_kills(runs)

    def count(self, runs, told):
        self.assertEqual([value for name, value in told.items() if name.startswith("lost") and value], [])
        runs["runs"] += 1
        runs["acknowledged"] += told["acknowledged"] + told.get("earlier_acknowledged", 0)
        runs["flows"] += told["acknowledged"] + told["spooled"]
        runs["repeated"] += told["repeated"]

    def blocks_in(self, spool):
        return [path for path in glob.glob(os.path.join(spool, "*", "*", "*")) if not path.endswith("/lock")]

    def check_kills(self, runs):
        blocks, lines, doubled = {}, collections.Counter(), 0
        for headers, rows in messages(self.broker, "kills"):
            name, digest = headers["tapline-batch"], hashlib.sha256(rows).digest()
            if name in blocks:
                doubled += 1
                self.assertEqual(blocks[name], digest, f"{name} has two contents")
            else:
                blocks[name] = digest
                lines.update(rows.splitlines())
        expected = collections.Counter({line: runs["runs"] * count for line, count in collections.Counter(self.rows).items()})
        self.assertEqual(runs["acknowledged"], runs["flows"], "the spool is empty: every flow is acknowledged")
        self.assertEqual(sum((lines - expected).values()), 0, "no row twice, once ids are looked at")
        self.assertEqual(sum((expected - lines).values()), 0, "no acknowledged row is missing")
        print(
            f"{KILLS} kills, {runs['runs']} runs: {runs['flows']} flows, {sum(lines.values())} rows in {len(blocks)} blocks; "
            f"{doubled} messages twice, with the same bytes; {runs['repeated']} offers repeated"
        )


if __name__ == "__main__":
    why = missing()
    if why:
        print(f"skipped: {why}")
    else:
        unittest.main(verbosity=2)
