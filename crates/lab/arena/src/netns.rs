//! A network namespace of our own with a pair of virtual Ethernet interfaces, quiet enough to count packets.
//!
//! ```text
//! namespace tapline-LABEL-PID-N
//!   near0 <=== veth ===> far0        what is sent on one is received on the other
//! ```
//!
//! Nothing but the test sends there: IPv6 is off (no neighbour discovery, no listener reports), so is ARP; checksums
//! and segmentation are done in full, so frames arrive as they were sent. Making and removing a namespace needs no other
//! program; [`Namespace::ip`] and [`Namespace::command`] run iproute2.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tapline_sys::{Link, LinkControl, NetNs, RouteSocket, SyscallError};

/// One end of the pair.
pub const NEAR: &str = "near0";
/// The other end.
pub const FAR: &str = "far0";

/// `IF_OPER_UP` of linux/if.h.
const OPER_UP: u8 = 6;
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
    let try_it = || {
        let missing = ["ip", "ethtool"].into_iter().find(|program| !has_program(program));
        missing.map_or(Ok(()), |program| Err(format!("the program {program} is not installed")))?;
        Namespace::with_pair("probe").map(drop)
    };
    ANSWER.get_or_init(try_it).clone()
}

/// Set by `make quick`: tests that need root or a network are skipped also where they could run.
pub const QUICK: &str = "TAPLINE_QUICK";

/// Reports on standard error that `test` is skipped, and why, unless namespaces can be made.
///
/// Returns whether to go on.
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
    /// The call that failed, and why.
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
    /// The call that failed, and why: for example that the name is taken.
    pub fn named(name: &str) -> Result<Namespace, String> {
        NetNs::create(name).map_err(|error| format!("namespace {name}: {error}"))?;
        let namespace = Namespace { name: name.to_owned() };
        namespace.inside(|| {
            switch_ipv6_off("all")?;
            switch_ipv6_off("default")
        })?;
        Ok(namespace)
    }

    /// Name, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a pair of veth interfaces, quiet and up, once both send.
    ///
    /// # Errors
    /// The call that failed, and why.
    pub fn add_pair(&self, one: &str, other: &str) -> Result<(), String> {
        self.inside(|| add_pair(one, other).map_err(|error| format!("{one}, {other}: {error}")))?;
        [one, other].iter().try_for_each(|interface| self.wait_until_up(interface))
    }

    /// Waits until an interface sends packets. After its carrier came up the kernel sets its queues up in the
    /// background (`linkwatch_do_dev`); until then packets are dropped silently. The operational state of a veth is
    /// unknown for so long, and the kernel says of such a link that it runs.
    ///
    /// # Errors
    /// That it does not come up within a minute, or the call that failed.
    pub fn wait_until_up(&self, interface: &str) -> Result<(), String> {
        self.inside(|| {
            let start = Instant::now();
            let mut route = RouteSocket::open().map_err(|error| error.to_string())?;
            loop {
                let link = link(&mut route, interface).map_err(|error| format!("{interface}: {error}"))?;
                if link.is_up() && link.is_running() && (link.oper_state == OPER_UP || link.kind != "veth") {
                    return Ok(());
                }
                if start.elapsed() > PATIENCE {
                    return Err(format!("{interface} does not come up: {link:?}"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    }

    /// Runs `work` in the namespace, in a thread of its own.
    fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
        let namespace =
            NetNs::open(&self.name).map_err(|error| format!("namespace {}: {error}", self.name))?;
        namespace.run(work).map_err(|error| format!("namespace {}: {error}", self.name))?
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
        // `ip netns exec` mounts /sys again, so that it shows this namespace.
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
}

/// Adds a pair of veth interfaces in the namespace of this thread: without ARP, multicast and offloads, and up.
fn add_pair(one: &str, other: &str) -> Result<(), SyscallError> {
    let mut route = RouteSocket::open()?;
    route.add_veth_pair(one, other)?;
    let mut control = LinkControl::open()?;
    let mut quiet = |name| {
        switch_offloads_off(&mut control, name)?;
        let index = link(&mut route, name)?.index;
        route.set_flags(index, libc::IFF_NOARP, libc::IFF_NOARP | libc::IFF_MULTICAST)?;
        Ok(index)
    };
    let indexes: Vec<u32> = [one, other].into_iter().map(&mut quiet).collect::<Result<_, SyscallError>>()?;
    indexes.into_iter().try_for_each(|index| route.set_flags(index, libc::IFF_UP, libc::IFF_UP))
}

fn link(route: &mut RouteSocket, name: &str) -> Result<Link, SyscallError> {
    let links = route.links()?;
    links
        .into_iter()
        .find(|link| link.name == name)
        .ok_or(SyscallError::new("netlink(NETLINK_ROUTE)", libc::ENODEV))
}

/// Does the same as `ethtool -K NAME tx off gso off tso off gro off sg off`.
fn switch_offloads_off(control: &mut LinkControl, name: &str) -> Result<(), SyscallError> {
    const PREFIXES: [&str; 5] =
        ["tx-checksum-", "tx-scatter-gather", "tx-tcp", "tx-generic-segmentation", "rx-gro"];
    let features = control.features(name)?;
    let of_interest = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let wanted: Vec<(&str, bool)> = features
        .iter()
        .filter(|feature| feature.is_on && feature.is_changeable && of_interest(&feature.name))
        .map(|feature| (feature.name.as_str(), false))
        .collect();
    control.set_features(name, &wanted)
}

fn switch_ipv6_off(interface: &str) -> Result<(), String> {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match fs::write(&path, "1") {
        // A kernel without IPv6 has no such file, and nothing to switch off.
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{path}: {error}")),
        _ => Ok(()),
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
/// The call that failed, and why.
pub fn remove(name: &str) -> Result<(), String> {
    NetNs::remove(name).map_err(|error| format!("namespace {name}: {error}"))
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
        let taken = Namespace::named(&name).unwrap_err();
        assert!(taken.contains("File exists"), "{taken}");
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(namespace.counter(FAR, "rx_packets"), Ok(0));
        drop(namespace);
        assert!(!run(Command::new("ip").args(["netns", "list"])).expect("listing").contains(&name));
    }
}
