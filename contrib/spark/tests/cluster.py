"""The data sources on a Spark of two workers: answers are those of one machine.

    scripts/test-tools.sh cluster; make test-cluster

TAPLINE is the program (target/debug/tapline by default). Without Spark or Java it says `skipped: why` and passes.
"""

import collections
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
SOURCE = os.path.dirname(HERE)
MODULES = os.environ.get("TAPLINE_PYTHON", os.path.join(ROOT, "target", "python"))
TAPLINE = os.environ.get("TAPLINE", os.path.join(ROOT, "target", "debug", "tapline"))
sys.path[:0] = [SOURCE, MODULES]

# Two files, a minute apart; tags and IPv6 among them.
RECIPE = "udp tcp icmp ip ip6 size=80..900 flows=3k order=random rate=20k count=60k".split()
FIRST = 1_700_000_000


def missing():
    """Why nothing can be run here; None if all is there."""
    if not shutil.which("java"):
        return "there is no java here"
    if not os.path.exists(TAPLINE):
        return f"{TAPLINE} is not built"
    try:
        import pyarrow  # noqa: F401
        import pyspark
    except ImportError as error:
        return f"{error}: scripts/test-tools.sh cluster installs it"
    if int(pyspark.__version__.split(".")[0]) < 4:
        return f"pyspark {pyspark.__version__} has no Python data sources"
    return None


def tapline(*words):
    done = subprocess.run([TAPLINE, *words], capture_output=True)
    if done.returncode:
        raise RuntimeError(f"tapline {' '.join(words)}: {done.stderr.decode()}")
    return done.stdout


def alone(*words):
    """The packets of one process, as a table."""
    import pyarrow.ipc

    return pyarrow.ipc.open_stream(tapline(*words, "--arrow")).read_all()


def greatest(sums):
    return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))[:10]


def start_spark(folder, megabytes=1024):
    """A Spark of two workers with a core each, which has the data sources."""
    global tapline_spark
    import tapline_spark
    from pyspark.sql import SparkSession

    paths = f"{SOURCE}:{MODULES}"
    os.environ["PYTHONPATH"] = paths
    os.environ["SPARK_HOME"] = os.path.join(MODULES, "pyspark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = SparkSession.builder.master(f"local-cluster[2,1,{megabytes}]").appName("tapline")
    for key, value in {
        "spark.executor.memory": f"{megabytes}m",
        "spark.executorEnv.PYTHONPATH": paths,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": os.path.join(folder, "warehouse"),
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        session = session.config(key, value)
    spark = session.getOrCreate()
    tapline_spark.register(spark)
    return spark


class Cluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.files = [os.path.join(cls.folder.name, f"{name}.pcap") for name in ("a", "b")]
        for at, file in enumerate(cls.files):
            tapline("generate", "-w", file, *RECIPE, *(["vlan=5"] if at else []), f"seed={at + 1}", f"start={FIRST + 60 * at}")
        cls.store = os.path.join(cls.folder.name, "store")
        tapline("store", "import", cls.store, *cls.files, "--segment", "4MiB")
        cls.table = alone("find", cls.store)
        cls.spark = start_spark(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.spark.stop()
        cls.folder.cleanup()

    def packets(self, path=None, source="tapline", **options):
        reader = self.spark.read.format(source).option("tapline", TAPLINE)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(path or self.store)

    def talkers(self):
        sums = collections.Counter()
        for src, length in zip(self.table["src"].to_pylist(), self.table["length"].to_pylist()):
            if src is not None:
                sums[src] += length
        return greatest(sums)

    def needle(self):
        """The flow with the fewest packets: addresses and port of its first packet."""
        columns = ["src", "dst", "sport", "dport"]
        rows = [row for row in zip(*(self.table[name].to_pylist() for name in columns)) if row[2] is not None]
        return min(collections.Counter(rows).items(), key=lambda pair: (pair[1], pair[0]))

    def test_every_packet_is_there_once(self):
        packets = self.packets()
        self.assertGreater(packets.rdd.getNumPartitions(), 5)
        self.assertEqual(packets.count(), self.table.num_rows)
        self.assertEqual(self.table.num_rows, 120_000)
        lengths = packets.selectExpr("sum(length)", "sum(captured)", "count(src)", "count(vlan)").first()
        column = lambda name: self.table[name].to_pylist()
        there = lambda name: sum(1 for value in column(name) if value is not None)
        self.assertEqual(list(lengths), [sum(column("length")), sum(column("captured")), there("src"), there("vlan")])

    def test_partitions_of_several_segments_lack_nothing(self):
        for most in (1, 3):
            packets = self.packets(partitionsMax=most)
            self.assertEqual((packets.rdd.getNumPartitions(), packets.count()), (most, self.table.num_rows))
        found = tapline_spark.find(self.spark, self.store, tapline=TAPLINE)
        self.assertEqual((found.rdd.getNumPartitions(), found.count()), (4, self.table.num_rows))

    def test_both_workers_take_part(self):
        lengths = self.packets(columns="length").rdd
        counts = lengths.mapPartitions(lambda rows: [(os.getppid(), sum(1 for _ in rows))])
        parents = counts.reduceByKey(lambda one, other: one + other).collect()
        self.assertEqual(len(parents), 2, parents)
        self.assertEqual(sum(count for _, count in parents), self.table.num_rows)

    def test_top_talkers(self):
        talkers = self.packets().where("src is not null").groupBy("src").sum("length").collect()
        self.assertEqual(greatest({row[0]: row[1] for row in talkers}), self.talkers())

    def test_a_needle_by_address_and_port(self):
        (src, dst, sport, dport), count = self.needle()
        rows = zip(*(self.table[name].to_pylist() for name in ("src", "dst", "sport", "dport", "data")))
        wanted = sorted(data for *key, data in rows if key == [src, dst, sport, dport])
        self.assertEqual(len(wanted), count)
        # A filter of the command alone, conditions of Spark alone, and both.
        question = f"src = '{src}' and dst = '{dst}' and sport = {sport} and dport = {dport}"
        for found in (
            tapline_spark.find(
                self.spark, self.store, columns="data", src=src, dst=[dst], sport=sport, dport=dport, tapline=TAPLINE
            ),
            self.packets(columns="src,dst,sport,dport,data").where(question),
            self.packets(columns="src,dst,sport,dport,data", source="tapline-pushed").where(question),
        ):
            self.assertEqual(sorted(bytes(row["data"]) for row in found.collect()), wanted)

    def test_hosts_ports_and_times(self):
        at = self.table["time"].cast("int64").to_pylist()
        until = datetime.datetime.fromtimestamp(FIRST + 61, datetime.timezone.utc)
        host, port = self.talkers()[0][0], 1024
        found = tapline_spark.find(self.spark, self.store, host=host, until=until, tapline=TAPLINE)
        ends = list(zip(at, self.table["src"].to_pylist(), self.table["dst"].to_pylist()))
        wanted = sum(1 for time, src, dst in ends if host in (src, dst) and time < (FIRST + 61) * 10**9)
        self.assertGreater(wanted, 1000)
        self.assertEqual(found.count(), wanted)
        ports = list(zip(self.table["sport"].to_pylist(), self.table["dport"].to_pylist()))
        port = ports[-1][1] or 9
        found = tapline_spark.find(self.spark, self.store, port=port, since=until, tapline=TAPLINE)
        wanted = sum(1 for time, ends in zip(at, ports) if port in ends and time >= (FIRST + 61) * 10**9)
        self.assertEqual(found.count(), wanted)

    def read_alone(self, source, conditions):
        """Packets that the source gives before Spark asks again, and its partitions."""
        reader = source({"path": self.store, "tapline": TAPLINE, "columns": "src,length"})
        reader = reader.reader(self.packets(columns="src,length").schema)
        self.assertEqual(len(list(reader.pushFilters(conditions))), len(conditions))
        parts = reader.partitions()
        return sum(batch.num_rows for part in parts for batch in reader.read(part)), len(parts)

    def test_conditions_reach_the_command(self):
        from pyspark.sql.datasource import EqualTo, LessThan

        (src, *_), _ = self.needle()
        asked, parts = self.read_alone(tapline_spark.PushedPackets, [EqualTo(("src",), src)])
        self.assertEqual(asked, sum(1 for value in self.table["src"].to_pylist() if value == src))
        self.assertLess(asked, self.table.num_rows // 10)
        early = datetime.datetime.fromtimestamp(FIRST + 1, datetime.timezone.utc)
        asked, fewer = self.read_alone(tapline_spark.PushedPackets, [LessThan(("time",), early)])
        at = self.table["time"].cast("int64").to_pylist()
        self.assertEqual(asked, sum(1 for time in at if time < (FIRST + 1) * 10**9))
        self.assertLess(fewer, parts)

    def test_times_are_exact(self):
        at = self.table["time"].cast("int64").to_pylist()
        one = at[1000] // 1000
        for condition, is_wanted in {
            f"time = timestamp_micros({one})": lambda time: time // 1000 == one,
            f"time > timestamp_micros({one})": lambda time: time // 1000 > one,
            f"time <= timestamp_micros({one})": lambda time: time // 1000 <= one,
        }.items():
            wanted = sum(1 for time in at if is_wanted(time))
            self.assertEqual(self.packets(source="tapline-pushed").where(condition).count(), wanted, condition)

    def test_one_frame_answers_several_questions(self):
        packets = self.packets()
        early = packets.where(f"time < timestamp_seconds({FIRST + 1})")
        self.assertEqual(early.count(), 20_000)
        self.assertEqual(packets.count(), self.table.num_rows)

    def test_files_and_stretches_of_files(self):
        whole = self.packets(self.folder.name + "/*.pcap")
        self.assertEqual(whole.rdd.getNumPartitions(), 2)
        split = self.packets(self.folder.name + "/*.pcap", splitBytes=4_000_000)
        self.assertGreater(split.rdd.getNumPartitions(), 6)
        (src, *_), _ = self.needle()
        for packets in (whole, split):
            self.assertEqual(packets.count(), self.table.num_rows)
            wanted = sum(1 for value in self.table["src"].to_pylist() if value == src)
            self.assertEqual(packets.where(f"src = '{src}'").count(), wanted)

    def test_flows_count_what_packets_count(self):
        flows = self.spark.read.format("tapline-flows").option("tapline", TAPLINE).load(self.store)
        sums = flows.groupBy("sourceIPv4Address", "sourceIPv6Address").sum("packetDeltaCount").collect()
        counts = collections.Counter()
        for row in sums:
            counts[row[0] or row[1]] += row[2]
        wanted = collections.Counter(src for src in self.table["src"].to_pylist() if src is not None)
        self.assertEqual(counts, wanted)

    def test_errors_have_the_words_of_the_command(self):
        with self.assertRaisesRegex(Exception, "there is no column 'adress'"):
            self.packets(columns="adress").schema
        with self.assertRaisesRegex(Exception, "syntax error"):
            self.packets(filter="tcp prot 80").count()
        with self.assertRaisesRegex(Exception, "no such file|No such file"):
            self.packets("/nowhere/packets.pcap").count()

    def test_a_limit_ends_early(self):
        self.assertEqual(len(self.packets().limit(7).collect()), 7)


if __name__ == "__main__":
    why = missing()
    if why:
        print(f"skipped: cluster.py: {why}")
        sys.exit(0)
    unittest.main(verbosity=2)
