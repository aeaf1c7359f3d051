"""Flows and packets to a real broker over TLS, by a user with a password (SCRAM-SHA-512).

    cargo build --features kafka-tls --bin tapline; python3 contrib/kafka/tests/secure.py

As broker.py; openssl makes the certificates. A program without the feature `kafka-tls` is told as skipped.
"""

import os
import shutil
import subprocess
import tempfile
import unittest

import broker as kafka

SECRET = "open sesame"


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def certificates(folder):
    """An authority, and a broker's key and certificate by it; another authority."""
    place = lambda name: os.path.join(folder, name)
    for name in ("ca", "other"):
        openssl(*"req -x509 -newkey rsa:2048 -nodes -days 2 -subj".split(), f"/CN={name}", "-keyout", place(f"{name}.key"), "-out", place(f"{name}.pem"))
    with open(place("san"), "w") as out:
        out.write("subjectAltName=IP:127.0.0.1\n")
    openssl(*"req -newkey rsa:2048 -nodes -subj /CN=broker -keyout".split(), place("broker.key"), "-out", place("broker.csr"))
    openssl("x509", "-req", "-in", place("broker.csr"), "-CA", place("ca.pem"), "-CAkey", place("ca.key"), "-CAcreateserial", "-days", "2",
            "-extfile", place("san"), "-out", place("broker.pem"))
    openssl("pkcs12", "-export", "-in", place("broker.pem"), "-inkey", place("broker.key"), "-passout", "pass:keystore", "-out", place("broker.p12"))


class SecureBroker(kafka.Broker):
    """Beside its plain listener it has one with TLS, and one with TLS and passwords."""

    FORMAT = ("--add-scram", f"SCRAM-SHA-512=[name=me,password={SECRET}]")

    def configure(self, makes_topics):
        super().configure(makes_topics)
        self.tls, self.sasl = (f"127.0.0.1:{port}" for port in kafka.ports(2))
        with open(self.file) as plain:
            lines = plain.read().splitlines()
        with open(self.file, "w") as out:
            for line in lines:
                if line.startswith("listeners="):
                    line += f",SSL://{self.tls},SASL_SSL://{self.sasl}"
                if line.startswith("listener.security.protocol.map="):
                    line += ",SSL:SSL,SASL_SSL:SASL_SSL"
                out.write(line + "\n")
            out.write(
                f"ssl.keystore.type=PKCS12\nssl.keystore.location={self.folder}/broker.p12\nssl.keystore.password=keystore\n"
                "sasl.enabled.mechanisms=SCRAM-SHA-512\ninter.broker.listener.name=PLAINTEXT\n"
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config="
                "org.apache.kafka.common.security.scram.ScramLoginModule required;\n"
            )


class Secure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.place = lambda cls, name: os.path.join(cls.folder.name, name)
        certificates(cls.folder.name)
        cls.file = os.path.join(cls.folder.name, "a.pcap")
        subprocess.run([kafka.TAPLINE, "generate", "-w", cls.file, "udp", "ip", "flows=500", "count=500"], check=True, capture_output=True)
        cls.broker = SecureBroker(cls.folder.name)
        cls.broker.start()
        cls.broker.make("secure")

    @classmethod
    def tearDownClass(cls):
        cls.broker.kill()
        cls.folder.cleanup()

    def to(self, address, user, properties):
        """The topic, with properties in a file."""
        name = self.place("client.properties")
        with open(name, "w") as out:
            out.write(properties)
        return f"kafka://{user}{address}/secure?properties={name}"

    def secret(self, secret):
        """Words for a password, in a file."""
        with open(self.place("secret"), "w") as out:
            out.write(secret + "\n")
        return ["--export-secret", self.place("secret")]

    def probe(self, address, user, properties, secret=None, more=()):
        """Counters of a run, and what it said."""
        words = ["--export", self.to(address, user, properties), "--patience", "3s", *more]
        process = kafka.start_probe(self.file, *words, *(self.secret(secret) if secret else []))
        out, said = process.communicate(timeout=120)
        return process.returncode, out.decode(), said.decode()

    def rows(self):
        return sum(int(headers["tapline-rows"]) for headers, _ in kafka.messages(self.broker, "secure"))

    def test_rows_arrive_by_tls_and_passwords(self):
        ca = f"ssl.ca.location={self.place('ca.pem')}\n"
        for address, user, properties, secret in [
            (self.broker.tls, "", ca + "security.protocol=SSL\n", None),
            (self.broker.sasl, "me@", ca, SECRET),
        ]:
            before = self.rows()
            code, out, said = self.probe(address, user, properties, secret)
            self.assertEqual(code, 0, said)
            self.assertIn('"acknowledged":500', out)
            self.assertGreaterEqual(self.rows() - before, 500)

    def test_packets_come_and_go_by_tls_and_passwords(self):
        self.broker.make("packets")
        ca, back = f"ssl.ca.location={self.place('ca.pem')}\n", self.place("back.pcap")
        to = self.to(self.broker.sasl, "me@", ca).replace("/secure?", "/packets?")
        words = [kafka.TAPLINE, "capture", "-r", self.file, "-w", to, *self.secret(SECRET)]
        subprocess.run(words, check=True, capture_output=True, timeout=120)
        # A reader has its password in the file.
        to = self.to(self.broker.sasl, "me@", f"{ca}sasl.password={SECRET}\n").replace("/secure?", "/packets?until=end&")
        subprocess.run([kafka.TAPLINE, "capture", "-i", to, "-w", back], check=True, capture_output=True, timeout=120)
        with open(self.file, "rb") as one, open(back, "rb") as other:
            self.assertEqual(one.read()[24:], other.read()[24:])

    @unittest.skipUnless(os.geteuid() == 0, "skipped: it wants root, to become another user")
    def test_confined_processes_read_their_certificates(self):
        os.chmod(self.folder.name, 0o755)
        ca = f"ssl.ca.location={self.place('ca.pem')}\n"
        code, out, said = self.probe(self.broker.sasl, "me@", ca, SECRET, ["-Z", "nobody"])
        self.assertEqual(code, 0, said)
        self.assertIn('"acknowledged":500', out)
        self.broker.make("confined")
        to = self.to(self.broker.sasl, "me@", ca).replace("/secure?", "/confined?")
        words = [kafka.TAPLINE, "capture", "-r", self.file, "-w", to, "-Z", "nobody", *self.secret(SECRET)]
        # A capture reads the password while it has its rights.
        os.chmod(self.place("secret"), 0o600)
        done = subprocess.run(words, capture_output=True, timeout=120)
        os.chmod(self.place("secret"), 0o644)
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def test_strangers_are_told_apart_and_nothing_is_sent(self):
        ca, other = (f"ssl.ca.location={self.place(name)}\n" for name in ("ca.pem", "other.pem"))
        for address, user, properties, secret, why in [
            (self.broker.sasl, "me@", ca, "wrong", "Authentication failed"),
            (self.broker.sasl, "me@", other, SECRET, "certificate verify failed"),
            (self.broker.tls, "", other + "security.protocol=SSL\n", None, "certificate verify failed"),
        ]:
            before = self.rows()
            code, out, said = self.probe(address, user, properties, secret)
            self.assertNotEqual(code, 0, "rows that no broker took fail the run")
            self.assertIn(why, said)
            self.assertNotIn(SECRET, out + said)
            self.assertEqual(self.rows(), before)


def lacks_tls():
    """Whether the program was built without TLS for Kafka."""
    with tempfile.TemporaryDirectory() as folder:
        file, secret = os.path.join(folder, "a.pcap"), os.path.join(folder, "secret")
        subprocess.run([kafka.TAPLINE, "generate", "-w", file, "udp", "count=1"], check=True, capture_output=True)
        with open(secret, "w") as out:
            out.write("none\n")
        words = ["--export", "kafka://me@127.0.0.1:1/t", "--export-secret", secret, "--patience", "0.1s"]
        return b"OpenSSL not available" in kafka.start_probe(file, *words).communicate(timeout=60)[1]


if __name__ == "__main__":
    why = kafka.missing() or (not shutil.which("openssl") and "there is no openssl here")
    why = why or (lacks_tls() and f"{kafka.TAPLINE} was built without the feature kafka-tls")
    if why:
        print(f"skipped: {why}")
    else:
        unittest.main(verbosity=2)
