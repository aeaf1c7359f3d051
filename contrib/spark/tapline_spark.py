"""Packets and flows of Tapline as data sources of Spark.

    tapline_spark.register(spark)
    packets = spark.read.format("tapline").load("/srv/store")          # a store, capture files, a folder of them
    flows = spark.read.format("tapline-flows").load("/srv/store")
    needle = tapline_spark.find(spark, "/srv/store", host="192.0.2.7", port=53, since=yesterday)

A partition is a stretch of time of a store (a segment), a capture file, or a stretch of a large pcap file. A worker runs
`tapline` on it, whose packets come as Arrow; paths must lead to the same files on all workers. What `find` asks for goes
into the command, so that a store's index skips what cannot match; Spark asks it again of what comes back.

Spark's own push-down of conditions is the source `tapline-pushed`. As of Spark 4.3.0 a DataFrame of a Python source keeps
what one question pushed for the next question: load anew for each.

Needs Spark 4 with pyarrow (push-down: 4.1), and `tapline` with the feature `arrow` (flows: `parquet`) on every worker.
docs/cluster.md has the options.
"""

import datetime
import glob
import ipaddress
import json
import os
import struct
import subprocess
import tempfile
import threading
from dataclasses import dataclass

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

PACKETS = {
    "time": "timestamp",
    "time_ns": "bigint",
    "interface": "string",
    "length": "bigint",
    "captured": "bigint",
    "vlan": "int",
    "src": "string",
    "dst": "string",
    "protocol": "smallint",
    "sport": "int",
    "dport": "int",
    "tcp_flags": "smallint",
    "flow": "string",
    "data": "binary",
}
# Spark asks a Python source for all columns of its schema: those that most questions do not need are for whom names them.
PACKETS_UNASKED = ["time_ns", "flow", "data"]

FLOWS = {
    "flowStartMilliseconds": "timestamp",
    "flowEndMilliseconds": "timestamp",
    "sourceIPv4Address": "string",
    "sourceIPv6Address": "string",
    "sourceTransportPort": "int",
    "destinationIPv4Address": "string",
    "destinationIPv6Address": "string",
    "destinationTransportPort": "int",
    "protocolIdentifier": "smallint",
    "octetDeltaCount": "bigint",
    "packetDeltaCount": "bigint",
    "tcpControlBits": "smallint",
    "flowEndReason": "smallint",
}

# Columns whose equality a filter can ask, and how.
FILTERS = {
    "src": "src host",
    "dst": "dst host",
    "sport": "src port",
    "dport": "dst port",
    "protocol": "proto",
    "host": "host",
    "port": "port",
    # A flow has two directions, of which a record is one: both are wanted whole.
    "sourceIPv4Address": "host",
    "destinationIPv4Address": "host",
    "sourceIPv6Address": "host",
    "destinationIPv6Address": "host",
    "sourceTransportPort": "port",
    "destinationTransportPort": "port",
    "protocolIdentifier": "proto",
}

# What `find` asks for, and the columns that have it.
ASKED = {
    "host": ["src", "dst"],
    "src": ["src"],
    "dst": ["dst"],
    "port": ["sport", "dport"],
    "sport": ["sport"],
    "dport": ["dport"],
    "protocol": ["protocol"],
}

MICROSECOND = 1_000
PIECE = 1 << 20


@dataclass
class Part(InputPartition):
    """A stretch of time of a store, a file, or a stretch of a pcap file behind its header."""

    path: str
    from_ns: int | None = None
    to_ns: int | None = None
    first_byte: int | None = None
    end_byte: int | None = None


class Packets(DataSource):
    """Packets: `spark.read.format("tapline")`."""

    @classmethod
    def name(cls):
        return "tapline"

    def schema(self):
        named = self.options.get("columns")
        columns = [name.strip() for name in named.split(",")] if named else [
            name for name in PACKETS if name not in PACKETS_UNASKED
        ]
        return schema_of(columns, PACKETS)

    def reader(self, schema):
        return PacketReader(self.options, [field.name for field in schema.fields])


class PushedPackets(Packets):
    """Packets whose conditions Spark pushes down: `spark.read.format("tapline-pushed")`, a new one for each question."""

    @classmethod
    def name(cls):
        return "tapline-pushed"

    def reader(self, schema):
        return PushedReader(self.options, [field.name for field in schema.fields])


class Flows(DataSource):
    """Flows that Tapline meters from packets: `spark.read.format("tapline-flows")`."""

    @classmethod
    def name(cls):
        return "tapline-flows"

    def schema(self):
        return schema_of(list(FLOWS), FLOWS)

    def reader(self, schema):
        return FlowReader(self.options, [field.name for field in schema.fields])


def schema_of(columns, known):
    for name in columns:
        if name not in known:
            raise ValueError(f"there is no column {name!r}; there are: {', '.join(known)}")
    return ", ".join(f"{name} {known[name]}" for name in columns)


class Reader(DataSourceReader):
    """What packets and flows share: parts of the path, and conditions as a filter."""

    known = {}

    def __init__(self, options, columns):
        schema_of(columns, self.known)
        self.columns = columns
        self.program = options.get("tapline", "tapline")
        self.paths = paths_of(options)
        self.parts_wanted = number(options, "partitions", 0)
        self.parts_most = number(options, "partitionsMax", None)
        self.part_bytes = number(options, "splitBytes", 0)
        self.filter = [f"({options['filter']})"] if options.get("filter") else []
        self.from_ns = number(options, "fromNs", None)
        self.to_ns = number(options, "toNs", None)

    def partitions(self):
        parts = []
        for path in self.paths:
            if is_store(path):
                parts += self.parts_of_store(path)
            else:
                parts += parts_of_file(path, self.part_bytes)
        if not parts:
            raise ValueError(f"there is no capture file in {', '.join(self.paths)}")
        return parts

    def parts_of_store(self, path):
        """Stretches of time that touch each other, one for each segment: each packet is in one of them."""
        segments = json.loads(self.told([self.program, "store", "status", path, "--json"]))["segments"]
        times = sorted((s["sealed"]["first_ns"], s["sealed"]["last_ns"]) for s in segments if s["sealed"])
        marks = sorted({first for first, _ in times[1:]})
        if times and len(times) < len(segments):
            marks.append(max(last for _, last in times) + 1)
        if times and self.parts_wanted > len(marks) + 1:
            marks = evenly(marks, times[0][0], max(last for _, last in times), self.parts_wanted)
        elif self.parts_most is not None and self.parts_most < len(marks) + 1:
            marks = some_of(marks, self.parts_most - 1)
        bounds = [None, *sorted(set(marks)), None]
        stretches = zip(bounds, bounds[1:])
        if self.from_ns is not None or self.to_ns is not None:
            stretches = (self.within(low, high) for low, high in stretches)
        return [Part(path, low, high) for low, high in stretches if low is None or high is None or low < high]

    def within(self, low, high):
        """What of a stretch of time the conditions want."""
        if self.from_ns is not None:
            low = self.from_ns if low is None else max(low, self.from_ns)
        if self.to_ns is not None:
            high = self.to_ns if high is None else min(high, self.to_ns)
        return low, high

    def told(self, command):
        done = subprocess.run(command, capture_output=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {last_words(done.stderr)}")
        return done.stdout

    def times(self, part):
        words = []
        if part.from_ns is not None:
            words += ["--from", f"@{part.from_ns}ns"]
        if part.to_ns is not None:
            words += ["--to", f"@{part.to_ns}ns"]
        return words


class PacketReader(Reader):
    known = PACKETS

    def read(self, part):
        wanted = list(dict.fromkeys("time" if name == "time_ns" else name for name in self.columns))
        command = [self.program, "find", part.path] if is_store(part.path) else [
            self.program, "capture", "-r", part.path if part.first_byte is None else "-"
        ]
        command += self.times(part) + ["--arrow", "--columns", ",".join(wanted), *self.filter_words()]
        yield from batches(command, part, self.columns)

    def filter_words(self):
        return ["--", " and ".join(self.filter)] if self.filter else []


class PushedReader(PacketReader):
    def pushFilters(self, filters):
        """Takes conditions into the command; Spark asks all of them again, as the command may let more through."""
        for condition in filters:
            clause = clause_of(condition)
            if clause:
                self.filter.append(clause)
            low, high = stretch_of(condition)
            self.from_ns, self.to_ns = self.within(low, high)
            yield condition


class FlowReader(Reader):
    """Flows of each part: one that lasts beyond it is a record in each, as one that lasts beyond the active timeout."""

    known = FLOWS

    def read(self, part):
        import pyarrow.parquet

        name = f"store:{part.path}" if is_store(part.path) else part.path
        command = [self.program, "probe", "-r", name if part.first_byte is None else "-", *self.times(part)]
        with tempfile.TemporaryDirectory() as folder:
            written = os.path.join(folder, "flows")
            command += ["--export", f"parquet:{written}"]
            if self.filter:
                command += ["--", " and ".join(self.filter)]
            finish(start(command, part))
            for file in sorted(glob.glob(f"{written}/**/*.parquet", recursive=True)):
                for batch in pyarrow.parquet.ParquetFile(file).iter_batches(columns=self.columns):
                    yield as_spark(batch, self.columns, FLOWS)


def paths_of(options):
    """The paths of `load`: one, or a list as JSON."""
    named = json.loads(options["paths"]) if options.get("paths") else [options.get("path")]
    paths = []
    for name in named:
        if not name:
            raise ValueError("name a store or capture files: .load(PATH)")
        found = sorted(glob.glob(name)) or [name]
        for path in found:
            if os.path.isdir(path) and not is_store(path):
                below = (os.path.join(folder, file) for folder, _, files in os.walk(path) for file in files)
                paths += sorted(below)
            else:
                paths.append(path)
    return [os.path.abspath(path) for path in paths]


def is_store(path):
    return os.path.isdir(os.path.join(path, "seg"))


def number(options, name, default):
    text = options.get(name)
    if text is None:
        return default
    if not text.isdigit():
        raise ValueError(f"{name} is {text!r}: a whole number is wanted")
    return int(text)


def evenly(marks, first, last, wanted):
    """Marks between which about as many stretches lie as are wanted, those given among them."""
    bounds = [first, *marks, last + 1]
    each = -(-wanted // (len(bounds) - 1))
    more = []
    for low, high in zip(bounds, bounds[1:]):
        more += [low + (high - low) * at // each for at in range(1, each)]
    return sorted({*marks, *more})


def some_of(marks, wanted):
    """This number of marks, between which about as many of the others lie."""
    return [marks[(at + 1) * len(marks) // (wanted + 1)] for at in range(max(wanted, 0))]


def parts_of_file(path, part_bytes):
    """A file as a whole; a pcap file that is longer than `part_bytes` in stretches that begin with a packet."""
    size = os.path.getsize(path)
    if not part_bytes or size <= part_bytes:
        return [Part(path)]
    with open(path, "rb") as file:
        order = {b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">", b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<"}
        order = order.get(file.read(4))
        if order is None:
            return [Part(path)]
        marks = [24]
        at, next_mark, length = 24, 24 + part_bytes, struct.Struct(order + "I")
        # Each length leads to the next packet: nothing else says for sure where one begins.
        while at + 16 <= size:
            if at >= next_mark:
                marks.append(at)
                next_mark = at + part_bytes
            file.seek(at + 8)
            at += 16 + length.unpack(file.read(4))[0]
    return [Part(path, first_byte=low, end_byte=high) for low, high in zip(marks, [*marks[1:], size])]


def clause_of(condition):
    """A filter that every packet passes which meets the condition; None if there is none."""
    if isinstance(condition, (EqualTo, EqualNullSafe)):
        values = [condition.value]
    elif isinstance(condition, In):
        values = list(condition.value)
    else:
        return None
    return clause(condition.attribute[0], values) if len(condition.attribute) == 1 else None


def clause(column, values, behind_labels=True):
    """The same of a column that has one of these values. Without `behind_labels` not of what stands behind MPLS labels
    and PPPoE sessions, which an index has no keys for."""
    words = FILTERS.get(column)
    if words is None or not values or len(values) > 1000:
        return None
    terms = []
    for value in values:
        if not is_fit(words, value):
            return None
        terms.append(f"{words} {value}")
    # Columns are those of the IP header behind tags, labels and sessions, and behind the extension headers of IPv6.
    are = f"extensions({' or '.join(terms)})"
    if behind_labels:
        are = " or ".join([are, *(f"ether proto {kind}" for kind in ("0x8847", "0x8848", "0x8864"))])
    return f"anyvlan(anyvlan({are}))"


def is_fit(words, value):
    if words.endswith("host"):
        try:
            return isinstance(value, str) and str(ipaddress.ip_address(value)) == value.lower()
        except ValueError:
            return False
    top = 65535 if words.endswith("port") else 255
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= top


def stretch_of(condition):
    """The stretch of time that a condition leaves: from, and up to, in nanoseconds; None where it has no bound."""
    kinds = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    if not isinstance(condition, kinds):
        return None, None
    if condition.attribute == ("time",) and isinstance(condition.value, datetime.datetime):
        # Spark's times are microseconds: one of them is a thousand of ours.
        at, step = nanoseconds(condition.value), MICROSECOND
    elif condition.attribute == ("time_ns",) and isinstance(condition.value, int):
        at, step = condition.value, 1
    else:
        return None, None
    if at < 0:
        return None, None
    if isinstance(condition, GreaterThan):
        return at + step, None
    if isinstance(condition, GreaterThanOrEqual):
        return at, None
    if isinstance(condition, LessThan):
        return None, at
    if isinstance(condition, LessThanOrEqual):
        return None, at + step
    return at, at + step


def nanoseconds(moment):
    if moment.tzinfo is None:
        moment = moment.astimezone()
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000


def start(command, part, **pipes):
    """Runs a command; a stretch of a file goes to its standard input, behind the file's header."""
    is_fed = part.first_byte is not None
    words = tempfile.TemporaryFile()
    child = subprocess.Popen(command, stdin=subprocess.PIPE if is_fed else subprocess.DEVNULL, stderr=words, **pipes)
    child.words = words
    if is_fed:
        threading.Thread(target=feed, args=(child.stdin, part), daemon=True).start()
    return child


def feed(pipe, part):
    try:
        with open(part.path, "rb") as file, pipe:
            pipe.write(file.read(24))
            file.seek(part.first_byte)
            left = part.end_byte - part.first_byte
            while left > 0 and (piece := file.read(min(left, PIECE))):
                pipe.write(piece)
                left -= len(piece)
    except BrokenPipeError:
        pass  # its last words say why


def finish(child):
    """Waits for a command; an error, and an answer that may lack packets, is told."""
    code = child.wait()
    with child.words as words:
        words.seek(0)
        if code:
            raise RuntimeError(f"{' '.join(child.args)}: {last_words(words.read())}")


def last_words(text):
    lines = [line for line in text.decode(errors="replace").splitlines() if line.startswith("tapline:")]
    return "\n".join(lines[-3:]) or "it failed and said nothing"


def batches(command, part, columns):
    """The batches of a command that writes Arrow."""
    import pyarrow.ipc

    child = start(command, part, stdout=subprocess.PIPE)
    try:
        try:
            for batch in pyarrow.ipc.open_stream(child.stdout):
                yield as_spark(batch, columns, PACKETS)
        except (pyarrow.ArrowInvalid, OSError):
            finish(child)  # a stream that is cut short has its reason
            raise
        finish(child)
    finally:
        # Spark may want no more than a part.
        child.stdout.close()
        child.words.close()
        if child.poll() is None:
            child.kill()
            child.wait()


def as_spark(batch, columns, known):
    """A batch with Spark's types: times in microseconds, signed integers."""
    import pyarrow as pa

    types = {
        "timestamp": pa.timestamp("us", tz="UTC"),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "smallint": pa.int16(),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    arrays = []
    for name in columns:
        array = batch.column("time" if name == "time_ns" else name)
        arrays.append(array.cast(types[known[name]], safe=known[name] != "timestamp"))
    return pa.RecordBatch.from_arrays(arrays, names=columns)


def find(spark, path, columns=None, since=None, until=None, labels=False, **wanted):
    """Packets of a store or of files that meet all conditions, as a DataFrame of its own.

    `host`, `src`, `dst`, `port`, `sport`, `dport`, `protocol`: a value or a list of them. `since`, `until` (exclusive):
    datetime. `columns`: names with commas between them. With `labels` also packets behind MPLS labels and PPPoE sessions,
    for which all chunks of the time are read. What else is named is an option of the source. Of a store there are twice as
    many partitions as Spark runs tasks at a time, by default: an index makes most of a store's segments cost less than a task.
    """
    from pyspark.sql import functions

    conditions, clauses, asked = [], [], []
    for name in [name for name in wanted if name in ASKED]:
        values = wanted.pop(name)
        values = values if isinstance(values, (list, tuple, set)) else [values]
        places = ASKED[name]
        made = clause(places[0] if len(places) == 1 else name, list(values), labels)
        if made is None:
            raise ValueError(f"{name} is {values}: it wants addresses as text, or numbers; 1 to 1000 of them")
        clauses.append(made)
        asked += places
        are = [functions.col(place).isin(*values) for place in places]
        conditions.append(are[0] if len(are) == 1 else are[0] | are[1])
    options = {"partitionsMax": 2 * spark.sparkContext.defaultParallelism, **wanted}
    for name, moment in (("fromNs", since), ("toNs", until)):
        if moment is not None:
            asked.append("time_ns")
            options[name] = nanoseconds(moment)
            time = functions.col("time_ns")
            conditions.append(time >= options[name] if name == "fromNs" else time < options[name])
    shown = [name.strip() for name in columns.split(",")] if columns else [
        name for name in PACKETS if name not in PACKETS_UNASKED
    ]
    if clauses:
        options["filter"] = " and ".join([*clauses, *([f"({options['filter']})"] if "filter" in options else [])])
    options["columns"] = ",".join(dict.fromkeys([*shown, *asked]))
    found = spark.read.format("tapline").options(**options).load(path)
    for condition in conditions:
        found = found.where(condition)
    return found.select(*shown)


def register(spark):
    """Registers the sources in a session, and has it hand on conditions to the one that takes them."""
    for source in (Packets, PushedPackets, Flows):
        spark.dataSource.register(source)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
