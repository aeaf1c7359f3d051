//! TLS to the server of OpenSSL, which writes its input to standard output.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tapline_flow::Flow;
use tapline_flow::export::{ExportOptions, ExportTarget, Exporter, FlowSink as _, TlsFiles};
use tapline_testkit::netns::has_program;

use crate::made_flows::flows;
use crate::reserved_port;

fn openssl_or_skip(test: &str) -> bool {
    let found = has_program("openssl");
    if !found {
        eprintln!("skipped: {test}: no openssl here");
    }
    found
}

fn openssl(folder: &Path, line: &str) {
    let output = Command::new("openssl").args(line.split_whitespace()).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority with certificates of the collector and of the probe, and another authority.
fn certificates(folder: &Path) {
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for authority in ["ca", "other"] {
        let files = format!("-keyout {authority}.key -out {authority}.pem");
        openssl(folder, &format!("req -x509 {new_key} {files} -days 30 -subj /CN={authority}"));
    }
    for (name, names) in [("collector", "DNS:collector.test,IP:127.0.0.1"), ("probe", "DNS:probe.test")] {
        let files = format!("-keyout {name}.key -out {name}.csr");
        openssl(folder, &format!("req -new {new_key} {files} -subj /CN={name}"));
        fs::write(folder.join("names"), format!("subjectAltName={names}")).unwrap();
        let authority = "-CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -days 30";
        openssl(folder, &format!("x509 -req -in {name}.csr -out {name}.pem {authority}"));
    }
}

/// A server that asks for certificates of the probe's authority, and writes its input into a file; ended when
/// dropped.
struct Server(Child, u16, PathBuf);

impl Server {
    fn start(folder: &Path, more: &[&str]) -> Server {
        let (_ours, address) = reserved_port(Ipv4Addr::LOCALHOST);
        let port = address.port();
        let line = "s_server -quiet -cert collector.pem -key collector.key -CAfile ca.pem -Verify 1 -verify_return_error";
        let written = folder.join(format!("{port}.got"));
        let child = Command::new("openssl")
            .args(line.split_whitespace())
            .args(["-accept", &format!("127.0.0.1:{port}"), "-naccept", "1"])
            .args(more)
            .current_dir(folder)
            // It ends with its input.
            .stdin(Stdio::piped())
            .stdout(fs::File::create(&written).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let listens = || {
            fs::read_to_string("/proc/net/tcp")
                .is_ok_and(|all| all.contains(&format!(":{port:04X} 00000000:0000 0A")))
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !listens() {
            assert!(Instant::now() < deadline, "the server does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        Server(child, port, written)
    }

    fn target(&self) -> ExportTarget {
        format!("tls://127.0.0.1:{}", self.1).parse().unwrap()
    }

    /// The received bytes, once the server has ended.
    fn got(mut self) -> Vec<u8> {
        let _input = self.0.stdin.take();
        self.0.wait().unwrap();
        fs::read(&self.2).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn files(folder: &Path, authority: &str, identity: Option<&str>, name: Option<&str>) -> ExportOptions {
    let file = |name: &str| -> PathBuf { folder.join(name) };
    let identity = identity.map(|name| (file(&format!("{name}.pem")), file(&format!("{name}.key"))));
    let server_name = name.map(str::to_owned);
    let tls = TlsFiles { authorities: Some(file(authority)), identity, server_name };
    ExportOptions { tls, ..ExportOptions::default() }
}

fn export(exporter: &mut Exporter, flows: &[Flow]) {
    let now = flows.iter().map(Flow::last).max().unwrap_or_default();
    exporter.export(flows, now).unwrap();
    exporter.finish(now).unwrap();
}

/// The server gets the same bytes that a file has: in TLS 1.2 and 1.3, checked by address and by name.
#[test]
fn tls_carries_the_bytes_of_a_file() {
    if !openssl_or_skip("tls_carries_the_bytes_of_a_file") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    certificates(folder);
    let flows = flows(3, 3000);
    let path = folder.join("flows.ipfix");
    let mut into_file =
        Exporter::open(&[ExportTarget::File(path.clone())], &ExportOptions::default()).unwrap();
    export(&mut into_file, &flows);
    let wanted = fs::read(&path).unwrap();
    assert!(wanted.len() > 200_000, "{}", wanted.len());
    for (version, name) in [("-tls1_3", None), ("-tls1_2", Some("collector.test"))] {
        let server = Server::start(folder, &[version]);
        let options = files(folder, "ca.pem", Some("probe"), name);
        let mut exporter = Exporter::open(&[server.target()], &options).unwrap();
        export(&mut exporter, &flows);
        let account = exporter.account();
        let packets: u64 = flows.iter().map(Flow::packets).sum();
        assert_eq!((account.packets.written, account.packets.lost), (packets, 0));
        drop(exporter);
        let got = server.got();
        assert!(got == wanted, "{version}: {} of {} octets", got.len(), wanted.len());
    }
}

/// Neither end takes the other for one that it is not.
#[test]
fn certificates_are_checked_both_ways() {
    if !openssl_or_skip("certificates_are_checked_both_ways") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    certificates(folder);
    let probe = Some("probe");
    for (why, options, words) in [
        ("another name", files(folder, "ca.pem", probe, Some("other.test")), "not valid for name"),
        ("another authority", files(folder, "other.pem", probe, None), "UnknownIssuer"),
        ("no certificate of ours", files(folder, "ca.pem", None, None), "alert"),
        ("one that is not signed", files(folder, "ca.pem", Some("other"), None), "alert"),
    ] {
        let server = Server::start(folder, &[]);
        let error = Exporter::open(&[server.target()], &options).err().expect(why).to_string();
        assert!(error.contains(words) && error.contains("tls://127.0.0.1"), "{why}: {error}");
        assert!(server.got().is_empty(), "{why}");
    }
}

#[test]
fn mistakes_with_files_are_told() {
    if !openssl_or_skip("mistakes_with_files_are_told") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    certificates(folder);
    let to: ExportTarget = "tls://127.0.0.1:9".parse().unwrap();
    let told = |options: &ExportOptions| {
        Exporter::open(std::slice::from_ref(&to), options).err().expect("a mistake").to_string()
    };
    assert!(told(&ExportOptions::default()).contains("--tls-ca"));
    assert!(told(&files(folder, "absent.pem", None, None)).contains("absent.pem"));
    assert!(told(&files(folder, "names", None, None)).contains("no certificate in it"));
    fs::copy(folder.join("ca.key"), folder.join("probe.key")).unwrap();
    let error = told(&files(folder, "ca.pem", Some("probe"), None));
    assert!(error.contains("probe.key"), "the key of another: {error}");
}

/// A server that speaks no TLS, and one that says nothing, are errors at the start.
#[test]
fn a_server_without_tls_is_an_error() {
    if !openssl_or_skip("a_server_without_tls_is_an_error") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    certificates(folder);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = ExportTarget::Tls(listener.local_addr().unwrap().to_string());
    let answer = thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.test ESMTP\r\n").unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    });
    let error =
        Exporter::open(&[to], &files(folder, "ca.pem", None, None)).err().expect("no TLS").to_string();
    assert!(error.contains("cannot export to tls://"), "{error}");
    answer.join().unwrap();
}
