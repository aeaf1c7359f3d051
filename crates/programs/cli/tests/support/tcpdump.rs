//! The real tcpdump at the far end of a pair.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use tapline_sys::{NetNs, proc_packet};
use tapline_testkit::netns::{FAR, Namespace};

use super::{bytes_of, packets_of, wait_for};

/// tcpdump at the far end, that writes to a file.
#[derive(Debug)]
pub struct Tcpdump(Child);

impl Tcpdump {
    /// Begins, and waits until it listens.
    pub fn start(namespace: &Namespace, file: &Path) -> Tcpdump {
        let arguments = [
            "-i",
            FAR,
            "-n",
            "-U",
            "-s",
            "0",
            "-B",
            "16384",
            "--time-stamp-precision=nano",
            "-Z",
            "root",
            "-w",
        ];
        let mut command = namespace.command("tcpdump");
        let child = command.args(arguments).arg(file).stderr(Stdio::null()).spawn().expect("tcpdump is here");
        let place = NetNs::open(namespace.name()).unwrap();
        wait_for("tcpdump to listen", || {
            let sockets = place.run(proc_packet::sockets).unwrap();
            sockets.iter().any(|socket| socket.is_running && socket.if_index != 0)
        });
        Tcpdump(child)
    }

    /// Ends it once it has written `count` packets, or when no more come.
    pub fn packets(mut self, file: &Path, bytes: u64) -> Vec<Vec<u8>> {
        wait_for("tcpdump to write", || std::fs::metadata(file).is_ok_and(|file| file.len() >= bytes));
        // Time for a packet that should not be there.
        std::thread::sleep(Duration::from_millis(100));
        // `ip netns exec` becomes the program, so that this reaches it.
        let kill = std::process::Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        assert!(kill.unwrap().success());
        self.0.wait().unwrap();
        bytes_of(packets_of(file))
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
