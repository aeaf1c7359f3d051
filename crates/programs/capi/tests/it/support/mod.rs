//! The library as programs find it, and programs run on it and on the system's.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tapline_testkit::netns::{FAR, NEAR, Namespace};
pub use tapline_testkit::surroundings::{captures_or_skip, programs_or_skip};
use tempfile::TempDir;

/// The name under which programs ask for libpcap on Debian.
pub const SONAME: &str = "libpcap.so.0.8";

/// A folder that holds our library under that name.
pub struct Library(TempDir);

impl Library {
    pub fn new() -> Library {
        let folder = TempDir::new().expect("a folder");
        symlink(built(), folder.path().join(SONAME)).expect("a link");
        Library(folder)
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self) -> PathBuf {
        self.folder().join(SONAME)
    }

    /// A command of a namespace, or of the test's own, whose program runs on this library.
    pub fn command(&self, namespace: Option<&Namespace>, program: &str) -> Command {
        let mut command = match namespace {
            Some(namespace) => namespace.command(program),
            None => Command::new(program),
        };
        command.env("LD_LIBRARY_PATH", self.folder());
        command
    }
}

/// The directory of cargo's results next to this test.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let folder = test.parent().expect("a folder");
    [folder, folder.parent().expect("a folder")]
        .iter()
        .map(|folder| folder.join("libpcap.so"))
        .find(|path| path.is_file())
        .expect("cargo builds libpcap.so before it runs these tests")
}

/// The program, if cargo built it next to the library; tests of this crate do not need it.
pub fn tapline() -> Option<PathBuf> {
    let folder = built().parent()?.to_owned();
    let places = [folder.join("tapline"), folder.parent()?.join("tapline")];
    places.into_iter().find(|path| path.is_file())
}

/// The system's libpcap, if there is one.
pub fn system_library() -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    folders.iter().map(|folder| Path::new(folder).join(SONAME)).find(|path| path.is_file())
}

/// Compiles one of the C programs of `tests/c` with our headers (or the system's) against our library.
pub fn compile(library: &Library, name: &str, with_our_headers: bool) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = library.folder().join(format!("{name}-{with_our_headers}"));
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-o"]).arg(&program);
    if with_our_headers {
        cc.arg("-I").arg(folder.join("include"));
    }
    cc.arg(folder.join("tests/c").join(format!("{name}.c"))).arg(library.file()).arg("-lpthread");
    // For programs that have more rights than their user: these do not look at LD_LIBRARY_PATH. Others do so first.
    cc.arg("-Wl,--enable-new-dtags").arg(format!("-Wl,-rpath,{}", library.folder().display()));
    let output = cc.output().expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Both outputs and how it ended, for people and for comparing.
pub fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}{:?}\n", text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Two hosts: namespaces with an end of a cable each, 10.77.0.1 on [`NEAR`] and 10.77.0.2 on [`FAR`].
pub struct Hosts {
    pub near: Namespace,
    pub far: Namespace,
}

impl Hosts {
    pub fn new(label: &str) -> Hosts {
        let near = Namespace::with_pair(label).expect("we may");
        let far = Namespace::named(&format!("{}-far", near.name())).expect("we may");
        near.ip(&["link", "set", FAR, "netns", far.name()]).expect("moved");
        for (namespace, interface, address) in [(&near, NEAR, "10.77.0.1/24"), (&far, FAR, "10.77.0.2/24")] {
            let ip = |arguments: &[&str]| namespace.ip(arguments).expect("ip");
            ip(&["link", "set", "lo", "up"]);
            ip(&["link", "set", interface, "arp", "on", "up"]);
            ip(&["address", "add", address, "dev", interface]);
        }
        Hosts { near, far }
    }

    /// `count` echo requests from near to far, and their replies.
    pub fn ping(&self, count: u32) {
        self.ping_with(count, 56);
    }

    /// As [`ping`](Self::ping), with this many bytes in each.
    pub fn ping_with(&self, count: u32, bytes: u32) {
        let [count, bytes] = [count, bytes].map(|number| number.to_string());
        let words = ["-q", "-i", "0.05", "-c", &count, "-s", &bytes, "10.77.0.2"];
        let output = self.near.command("ping").args(words).output();
        assert!(output.expect("ping runs").status.success(), "the far host answers");
    }
}
