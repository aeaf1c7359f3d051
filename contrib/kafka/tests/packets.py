"""Packets over a real broker of Kafka: they come back as they were, and none is lost while the broker is killed.

    scripts/test-tools.sh cluster; make test-cluster

As broker.py; tcpdump reads what came back. The tests of processes without rights want root.
"""

import collections
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import broker as kafka

FILES = (os.path.join(kafka.ROOT, "examples", "mixed.pcapng"), "generated")


def dump(path):
    """The packets of a file: time and bytes of each."""
    words = ["tcpdump", "-r", path, "-nn", "-tt", "-xx", "--nano"]
    text = subprocess.run(words, capture_output=True, check=True).stdout.decode(errors="replace")
    packets = []
    for line in text.splitlines():
        if line[:1].isdigit():
            packets.append(line.split()[0])
        elif line.startswith("\t0x"):
            packets[-1] += line.strip()
    return packets


def start(*words):
    words = [kafka.TAPLINE, *words]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)


def account(process, code=0):
    """The account of a run with --json, and what it said."""
    out, said = (text.decode() for text in process.communicate(timeout=2 * kafka.START_TIME))
    if process.returncode != code:
        raise AssertionError(f"it ended with {process.returncode}: {said}")
    told = json.loads(out.splitlines()[-1])["account"]
    assert told["balanced"], told
    return told, said


class Packets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        os.chmod(cls.folder.name, 0o755)
        cls.file = cls.place("a.pcap")
        subprocess.run([kafka.TAPLINE, "generate", "-w", cls.file, *kafka.RECIPE], check=True, capture_output=True)
        cls.packets = dump(cls.file)
        cls.broker = kafka.Broker(cls.folder.name)
        cls.broker.start()

    @classmethod
    def tearDownClass(cls):
        cls.broker.kill()
        cls.folder.cleanup()

    @classmethod
    def place(cls, name):
        return os.path.join(cls.folder.name, name)

    def topic(self, name, settings=""):
        return f"kafka://{self.broker.address}/{name}{settings}"

    def capture(self, *words, code=0):
        return account(start("capture", "--json", *words), code)

    def write(self, name, *words):
        """Writes the packets of the file; the output's row of the account."""
        told, _ = self.capture("-r", self.file, "-w", self.topic(name), *words)
        return told["outputs"][0]

    def read(self, name, settings="?until=end", *words):
        """Packets of a topic; the account, and what was said."""
        path = self.place(f"{name}.pcapng")
        told, said = self.capture("-i", self.topic(name, settings), "-w", path, *words)
        return dump(path), told, said

    def same(self, found, expected):
        """As assertEqual, which would take hours to show how so long lists differ."""
        self.assertTrue(found == expected, f"{len(found)} packets, {len(expected)} expected")

    def losses(self, told):
        return [loss["count"] for row in told["interfaces"] for loss in row["losses"]]

    def test_packets_come_back_as_they_were(self):
        for at, file in enumerate(FILES):
            file = self.file if file == "generated" else file
            for settings in ("", "?compress=zstd&key=none"):
                name = f"packets{at}{len(settings)}"
                self.broker.make(name)
                told, _ = self.capture("-r", file, "-w", self.topic(name, settings), "--sensor", "s1")
                found, read, _ = self.read(name)
                # Chunks of no key are spread over partitions, which have no order among them.
                order = sorted if settings else list
                self.same(order(found), order(dump(file)))
                self.assertEqual((told["outputs"][0]["written"], self.losses(read)), (len(found), []))
                sent = list(kafka.messages(self.broker, name))
                self.assertEqual(sum(int(headers["tapline-packets"]) for headers, _ in sent), len(found))
                for headers, section in sent:
                    self.assertEqual(headers["tapline-schema"], "tapline-packets-pcapng")
                    self.assertLess(len(section), 900_001)
                print(f"{name}: {len(sent)} messages, {len(found)} packets")

    def test_garbage_in_a_topic_is_told(self):
        self.broker.make("garbage")
        words = ["kcat", "-P", "-b", self.broker.address, "-t", "garbage", "-p", "0"]
        chunk = ["tapline-batch=s-1-0", "tapline-format=pcapng", "tapline-packets=5", "tapline-packets-before=0"]
        headed = [word for header in chunk for word in ("-H", header)]
        for more, text in (([], b"garbage"), (headed, b"garbage"), (headed, b"\x0a\x0d\x0d\x0a" + b"\xff" * 60)):
            with open(self.place("text"), "wb") as out:
                out.write(text)
            subprocess.run([*words, *more, self.place("text")], check=True)
        self.write("garbage", "-c", "100")
        found, told, said = self.read("garbage")
        self.assertEqual((len(found), self.losses(told)), (100, [5]))
        self.assertEqual(said.count("is not a chunk of packets"), 2)
        self.assertIn("chunk s-1-0 is damaged", said)

    def test_no_packet_is_lost_while_the_broker_is_killed(self):
        chance = random.Random(kafka.SEED)
        self.broker.make("killed")
        spool = self.place("spool")
        words = ["capture", "--json", "-r", self.file, "-w", self.topic("killed"), "--spool", f"{spool},1G"]
        kills = min(kafka.KILLS, 5)
        written = runs = 0
        while runs < kills or kafka.Topic.blocks_in(self, spool) and runs < kills + 10:
            process = start(*words)
            if runs < kills:
                time.sleep(chance.uniform(0.1, 1))
                self.broker.kill()
                self.broker.start()
            output = account(process)[0]["outputs"][0]
            self.assertEqual((output["lost"], output["buffered"]), (0, 0))
            written, runs = written + output["written"], runs + 1
        self.assertEqual(kafka.Topic.blocks_in(self, spool), [])
        found, told, _ = self.read("killed")
        self.assertEqual((written, self.losses(told)), (len(found), []), "what was acknowledged or spooled is there once")
        self.same(sorted(found), sorted(self.packets * runs))
        print(f"{kills} kills, {runs} runs: {len(found)} packets, none lost, none twice")

    def test_a_reader_outlives_its_broker(self):
        self.broker.make("outlived")
        count = len(self.packets)
        self.write("outlived")
        path = self.place("outlived.pcapng")
        reader = start("capture", "--json", "-i", self.topic("outlived"), "-w", path, "-U", "-c", str(2 * count))
        self.wait_for_bytes(path)
        self.broker.kill()
        self.broker.start()
        self.write("outlived")
        told, _ = account(reader)
        self.assertEqual((told["outputs"][0]["written"], self.losses(told)), (2 * count, []))
        self.same(dump(path), 2 * self.packets)

    def wait_for_bytes(self, path):
        until = time.monotonic() + kafka.START_TIME
        while not os.path.exists(path) or os.path.getsize(path) < 10_000:
            self.assertLess(time.monotonic(), until, f"nothing is in {path}")
            time.sleep(0.1)

    def test_an_empty_topic_is_read_from_its_end(self):
        self.broker.make("late")
        self.write("late", "-c", "7")
        path, count = self.place("late.pcapng"), 1000
        words = ["-i", self.topic("late", "?from=end"), "-w", path, "-c", str(count), "udp or tcp"]
        reader = start("capture", "--json", *words)
        # The reader says that it reads once it knows where the topic ends.
        line = reader.stderr.readline().decode()
        self.assertIn("reading from kafka://", line)
        self.write("late")
        told, _ = account(reader)
        self.assertEqual(self.losses(told), [])
        self.same(dump(path), self.packets[:count])

    def test_a_group_goes_on_where_it_stopped(self):
        self.broker.make("group")
        for lot in range(3):
            self.write("group", "--sensor", f"s{lot}")
            found, told, _ = self.read("group", "?until=end&group=readers")
            self.same((found, self.losses(told)), (self.packets, []))
        # Of a chunk that is cut the rest is not lost: it comes again.
        some, _, _ = self.read("group", "?until=end&group=others", "-c", "1000")
        rest, told, _ = self.read("group", "?until=end&group=others")
        self.assertEqual((len(some), self.losses(told)), (1000, []))
        self.same(sorted(rest), sorted(3 * self.packets))

    def test_readers_of_a_group_share_a_topic(self):
        self.broker.make("shared")
        paths = [self.place(f"shared{number}.pcapng") for number in range(2)]
        words = ["capture", "--json", "-i", self.topic("shared", "?group=both"), "-U", "-w"]
        readers = [start(*words, path) for path in paths]
        found, until = collections.Counter(), time.monotonic() + kafka.START_TIME
        for reader in readers:
            self.assertIn("reading from kafka://", reader.stderr.readline().decode())
        self.capture("-r", self.file, "-w", self.topic("shared", "?key=none"))
        while len(found) < len(set(self.packets)) and time.monotonic() < until:
            time.sleep(0.5)
            found = collections.Counter(packet for path in paths for packet in self.dump_so_far(path))
        for reader in readers:
            reader.send_signal(signal.SIGINT)
        accounts = [account(reader)[0] for reader in readers]
        counts = [told["outputs"][0]["written"] for told in accounts]
        self.assertEqual([self.losses(told) for told in accounts], [[], []])
        self.same(set(found), set(self.packets))
        print(f"shared: {counts} packets of {len(self.packets)}")

    def dump_so_far(self, path):
        """Packets of a file that is being written: it may have no interface yet, or end within a packet."""
        try:
            return dump(path)
        except subprocess.CalledProcessError:
            return []

    def test_flows_of_a_topic_are_those_of_the_file(self):
        self.broker.make("flows")
        self.write("flows")
        rows = []
        source = self.topic("flows", "?until=end")
        graph = f"device({source!r}) -> record({self.place('graph.pcapng')!r});".replace("'", '"')
        subprocess.run([kafka.TAPLINE, "run", "-e", graph], check=True, capture_output=True, timeout=kafka.START_TIME)
        self.same(dump(self.place("graph.pcapng")), self.packets)
        for words in (["-r", self.file], ["-i", source]):
            path = self.place(f"{len(rows)}.json")
            words = [kafka.TAPLINE, "probe", *words, "--export", f"json:{path}"]
            subprocess.run(words, check=True, capture_output=True, timeout=kafka.START_TIME)
            with open(path) as lines:
                rows.append(collections.Counter(lines))
        self.same(*rows)
        told, _ = account(start("probe", "--json", "-i", source, "--workers", "2"))
        self.assertEqual(sum(row["delivered"] for row in told["interfaces"]), len(self.packets))

    def test_damage_is_told_beside_another_topic(self):
        for name in ("damaged", "whole"):
            self.broker.make(name)
        words = ["kcat", "-P", "-b", self.broker.address, "-t", "damaged", "-p", "0"]
        for header in ("tapline-batch=s-1-0", "tapline-format=pcapng", "tapline-packets=5", "tapline-packets-before=0"):
            words += ["-H", header]
        with open(self.place("text"), "wb") as out:
            out.write(b"\x0a\x0d\x0d\x0a" + b"\xff" * 60)
        subprocess.run([*words, self.place("text")], check=True)
        self.write("whole", "-c", "10")
        sources = [self.topic(name, "?until=end") for name in ("damaged", "whole")]
        graph = "".join(f'device("{source}") -> record("{self.place(f"beside{at}.pcapng")}");' for at, source in enumerate(sources))
        told, _ = account(start("run", "--json", "-e", graph))
        self.assertEqual(sorted(self.losses(told)), [5])

    @unittest.skipUnless(os.geteuid() == 0, "skipped: it wants root, to become another user")
    def test_processes_without_rights_reach_brokers(self):
        self.broker.make("confined")
        spool = self.place("confined")
        os.mkdir(spool)
        os.chmod(spool, 0o777)
        words = ["--spool", f"{spool},1G", "-Z", "nobody"]
        told = self.write("confined", *words)
        self.assertEqual(told["written"], len(self.packets))
        shutil.rmtree(spool)
        found, read, _ = self.read("confined", "?until=end", "-Z", "nobody")
        self.assertEqual(self.losses(read), [])
        self.same(found, self.packets)


if __name__ == "__main__":
    why = kafka.missing() or (not shutil.which("tcpdump") and "there is no tcpdump here")
    if why:
        print(f"skipped: {why}")
    else:
        unittest.main(verbosity=2)
