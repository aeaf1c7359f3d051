//! The server of `tapline view` alone: TLS, the file with its address, strangers.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Ended;
use crate::support::{program_or_skip, run, tapline, wait_for};

/// A server without a meter. The line that it printed.
fn start(folder: &Path, arguments: &[&str]) -> (Ended, String) {
    let mut command = tapline(["view", "--listen", "127.0.0.1:0", "--no-history", "--meter", "none"]);
    command.args(arguments).env("TAPLINE_RUN_DIR", folder.join("run")).current_dir(folder);
    command.env("TAPLINE_SOCKET", folder.join("none"));
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program was built");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    (Ended(child), line.trim().to_owned())
}

/// A certificate for 127.0.0.1 and its key, which only its owner may read.
fn certificate(folder: &Path) {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    command.args(["-days", "2", "-subj", "/CN=page", "-addext", "subjectAltName=IP:127.0.0.1"]);
    command.args(["-keyout", "page.key", "-out", "page.pem"]).current_dir(folder);
    assert!(command.stderr(Stdio::null()).status().expect("openssl runs").success());
    fs::set_permissions(folder.join("page.key"), Permissions::from_mode(0o600)).expect("it is ours");
}

#[test]
fn the_page_is_served_over_tls() {
    const TEST: &str = "the_page_is_served_over_tls";
    if !program_or_skip(TEST, "openssl") || !program_or_skip(TEST, "curl") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    certificate(folder.path());
    let (_server, line) = start(folder.path(), &["--certificate", "page.pem", "--key", "page.key"]);
    let (address, token) = line.split_once("#token=").expect("an address with its token");
    assert!(address.starts_with("https://127.0.0.1:"), "{line}");

    let curl = |arguments: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "20", "-i"]).args(arguments).current_dir(folder.path());
        let output = command.output().expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let page = curl(&["--cacert", "page.pem", address]);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<!doctype html>"), "{page}");
    let bearer = format!("Authorization: Bearer {token}");
    let session = format!("{address}api/session");
    let session = curl(&["--cacert", "page.pem", "-H", &bearer, &session]);
    assert!(session.contains("tapline=") && session.contains("; Secure"), "{session}");
    assert!(curl(&[address]).contains("certificate"), "a certificate that is not known was trusted");
    let plain = curl(&[&address.replace("https", "http")]);
    assert!(!plain.contains("HTTP/1.1 200"), "{plain}");
}

#[test]
fn certificates_that_do_not_serve_are_refused() {
    if !program_or_skip("certificates_that_do_not_serve_are_refused", "openssl") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    certificate(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (chain, key) = (path("page.pem"), path("page.key"));
    fs::copy(&key, path("open.key")).expect("there is room");
    fs::set_permissions(path("open.key"), Permissions::from_mode(0o644)).expect("it is ours");
    let serve = |chain: &str, key: &str| {
        run(["view", "--meter", "none", "--no-history", "--certificate", chain, "--key", key])
    };
    serve(&chain, &path("open.key")).failed_saying(&["open.key", "every user may read this key"]);
    serve(&key, &key).failed_saying(&["page.key", "no certificate"]);
    serve(&chain, &chain).failed_saying(&["page.pem"]);
    serve(&path("none.pem"), &key).failed_saying(&["none.pem", "No such file"]);
    serve("/dev/zero", &key).failed_saying(&["/dev/zero", "more than 1048576 bytes"]);
}

#[test]
fn the_address_file_is_for_its_user_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other");
    fs::write(&other, "kept").expect("there is room");
    // A link that waits in the place of the draft is not followed.
    symlink(&other, folder.path().join("address.new")).expect("a link");
    let (_server, line) = start(folder.path(), &["--address-file", "address"]);
    let file = folder.path().join("address");
    let address = fs::read_to_string(&file).expect("it was written");
    assert!(address.starts_with("http://127.0.0.1:") && address.contains("/#token="), "{address}");
    assert!(line.starts_with("http://127.0.0.1:") && !line.contains("token="), "{line}");
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&other).expect("it is there"), "kept");
}

/// Asks for the session on an open connection: the status that comes.
fn ask(stream: &mut TcpStream, token: &str) -> Option<String> {
    session(stream, token).map(|(status, _)| status)
}

/// The status of the session, and its cookie.
fn session(stream: &mut TcpStream, token: &str) -> Option<(String, String)> {
    let request =
        format!("GET /api/session HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut reader = BufReader::new(stream);
    let (mut status, mut cookie, mut line) = (String::new(), String::new(), String::new());
    reader.read_line(&mut status).ok()?;
    while reader.read_line(&mut line).ok()? > 2 {
        if let Some(value) = line.strip_prefix("set-cookie: ") {
            cookie = value.split(';').next().unwrap_or_default().to_owned();
        }
        line.clear();
    }
    Some((status.trim().to_owned(), cookie))
}

#[test]
fn strangers_keep_no_browser_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, line) = start(folder.path(), &[]);
    let (address, token) = line.split_once("/#token=").expect("an address with its token");
    let address = address.trim_start_matches("http://");
    let connect = || {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream
    };
    let mut before = connect();
    let first = ask(&mut before, token).expect("an answer");
    assert!(first.starts_with("HTTP/1.1 2"), "{first}");

    // A page that is open: a line comes each second, or each ten seconds where there is nothing to show.
    let mut page = connect();
    let (_, cookie) = session(&mut page, token).expect("an answer");
    let request = format!("GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n");
    page.write_all(request.as_bytes()).expect("it is open");
    let mut page = BufReader::new(page);
    let is_line = |line: &str| line.starts_with("data: ") || line.starts_with(": still here");
    let next_line = |page: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        while page.read_line(&mut line).expect("it is open") > 0 && !is_line(&line) {
            line.clear();
        }
        line
    };
    assert!(is_line(&next_line(&mut page)), "the page gets no events");

    let mut strangers: Vec<TcpStream> = (0..300).map(|_| connect()).collect();
    // The oldest has been ended once the last have come.
    assert_eq!(strangers[0].read(&mut [0; 1]).unwrap_or(0), 0, "it is still open");
    assert_eq!(ask(&mut before, token), Some(first.clone()), "the browser that was there");
    wait_for("another browser", || ask(&mut connect(), token) == Some(first.clone()));
    assert!(is_line(&next_line(&mut page)), "the page that was open");
    let last = strangers.last_mut().expect("there are some");
    last.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    assert!(last.read(&mut [0; 1]).is_err(), "the newest stranger may stay");
}
