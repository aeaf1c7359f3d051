//! A network namespace of our own with a pair of virtual Ethernet interfaces, quiet enough to count packets.
//!
//! ```text
//! namespace tapline-LABEL-PID-N
//!   near0 <=== veth ===> far0        what is sent on one is received on the other
//! ```
//!
//! Nothing but the test sends there: IPv6 is off (no neighbour discovery, no listener reports), so is ARP; checksums
//! and segmentation are done in full, so frames arrive as they were sent. Made with iproute2 and ethtool.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// One end of the pair.
pub const NEAR: &str = "near0";
/// The other end.
pub const FAR: &str = "far0";

/// The longest wait for an interface to come up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace that exists until this value is dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

/// Whether this process may make namespaces and has the programs for it; if not, why. Tests that need one skip then.
///
/// # Errors
/// The reason, for people.
pub fn may_make_namespaces() -> Result<(), String> {
    static ANSWER: OnceLock<Result<(), String>> = OnceLock::new();
    ANSWER.get_or_init(|| Namespace::with_pair("probe").map(drop)).clone()
}

/// Set by `make quick`: tests that need root or a network are skipped also where they could run.
pub const QUICK: &str = "TAPLINE_QUICK";

/// Says on standard error that `test` is skipped, and why, unless namespaces can be made.
///
/// Gives whether to go on.
pub fn namespaces_or_skip(test: &str) -> bool {
    if std::env::var_os(QUICK).is_some() {
        eprintln!("skipped: {test}: {QUICK} is set");
        return false;
    }
    match may_make_namespaces() {
        Ok(()) => true,
        Err(reason) => {
            eprintln!("skipped: {test}: no network namespace: {reason}");
            false
        }
    }
}

impl Namespace {
    /// Makes a namespace of a name not used before, with [`NEAR`] and [`FAR`] up.
    ///
    /// # Errors
    /// The text of the failing program.
    pub fn with_pair(label: &str) -> Result<Namespace, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace::named(&format!("tapline-{label}-{}-{count}", std::process::id()))?;
        namespace.add_pair(NEAR, FAR)?;
        Ok(namespace)
    }

    /// Makes a namespace of this name without interfaces other than `lo`.
    ///
    /// # Errors
    /// The text of the failing program, for example that the name is taken.
    pub fn named(name: &str) -> Result<Namespace, String> {
        run(Command::new("ip").args(["netns", "add", name]))?;
        let namespace = Namespace { name: name.to_owned() };
        namespace.switch_ipv6_off("all")?;
        namespace.switch_ipv6_off("default")?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a pair of veth interfaces, quiet and up, once both send.
    ///
    /// # Errors
    /// The text of the failing program.
    pub fn add_pair(&self, one: &str, other: &str) -> Result<(), String> {
        self.ip(&["link", "add", one, "type", "veth", "peer", "name", other])?;
        for interface in [one, other] {
            self.ip(&["link", "set", interface, "arp", "off", "multicast", "off"])?;
            self.switch_offloads_off(interface)?;
        }
        for interface in [one, other] {
            self.ip(&["link", "set", interface, "up"])?;
        }
        [one, other].iter().try_for_each(|interface| self.wait_until_up(interface))
    }

    /// Waits until an interface sends what it is given. After its carrier came up the kernel sets its queues up in the
    /// background (`linkwatch_do_dev`); until then packets are dropped without a word.
    ///
    /// # Errors
    /// That it does not come up within a minute, or the text of the failing program.
    pub fn wait_until_up(&self, interface: &str) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let shown = self.ip(&["link", "show", "dev", interface])?;
            if shown.contains("state UP") || shown.contains("state UNKNOWN") {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("{interface} does not come up: {shown}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs `ip` in the namespace.
    ///
    /// # Errors
    /// Its text.
    pub fn ip(&self, arguments: &[&str]) -> Result<String, String> {
        run(Command::new("ip").args(["-n", &self.name]).args(arguments))
    }

    /// A command that will run `program` in the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// A counter of an interface by its name in `/sys/class/net/*/statistics`, such as `rx_packets`.
    ///
    /// # Errors
    /// The counter cannot be read.
    pub fn counter(&self, interface: &str, counter: &str) -> Result<u64, String> {
        // `ip netns exec` mounts /sys anew, so that it shows this namespace.
        let path = format!("/sys/class/net/{interface}/statistics/{counter}");
        let text = run(self.command("cat").arg(&path))?;
        text.trim().parse().map_err(|e| format!("{path}: {e}"))
    }

    /// Keeps the namespace when this value is dropped, for use across processes: see [`remove`].
    pub fn keep(self) -> String {
        let name = self.name.clone();
        std::mem::forget(self);
        name
    }

    fn switch_ipv6_off(&self, interface: &str) -> Result<(), String> {
        let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
        // A kernel without IPv6 has no such file, and nothing to switch off.
        let script = format!("[ ! -e {path} ] || echo 1 > {path}");
        run(self.command("sh").args(["-c", &script])).map(drop)
    }

    fn switch_offloads_off(&self, interface: &str) -> Result<(), String> {
        const OFFLOADS: [&str; 10] = ["tx", "off", "gso", "off", "tso", "off", "gro", "off", "sg", "off"];
        run(self.command("ethtool").args(["-K", interface]).args(OFFLOADS)).map(drop)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A failure leaves a namespace behind, which is named after us; an error here has no receiver.
        let _ = remove(&self.name);
    }
}

/// Removes a namespace by name, with its interfaces.
///
/// # Errors
/// The text of `ip`.
pub fn remove(name: &str) -> Result<(), String> {
    run(Command::new("ip").args(["netns", "delete", name])).map(drop)
}

/// Whether a program of this name can be run from `PATH`.
pub fn has_program(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .any(|folder| fs::metadata(folder.join(name)).is_ok_and(|file| file.is_file()))
}

fn run(command: &mut Command) -> Result<String, String> {
    let shown = || format!("{command:?}").replace('"', "");
    let text = shown();
    match command.stdin(Stdio::null()).output() {
        Ok(Output { status, stdout, .. }) if status.success() => {
            Ok(String::from_utf8_lossy(&stdout).into_owned())
        }
        Ok(Output { stderr, .. }) => Err(format!("{text}: {}", String::from_utf8_lossy(&stderr).trim())),
        Err(error) => Err(format!("{text}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_quiet_and_goes_away() {
        if !namespaces_or_skip("the_namespace_is_quiet_and_goes_away") {
            return;
        }
        let namespace = Namespace::with_pair("test").expect("we may");
        let name = namespace.name().to_owned();
        assert!(run(Command::new("ip").args(["netns", "list"])).expect("listing").contains(&name));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(namespace.counter(FAR, "rx_packets"), Ok(0));
        drop(namespace);
        assert!(!run(Command::new("ip").args(["netns", "list"])).expect("listing").contains(&name));
    }
}
