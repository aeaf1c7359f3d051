//! `tapline extcap`: captures of `tapline serve` as interfaces of Wireshark.
//!
//! ```text
//! Wireshark --extcap-interfaces-->  extcap {version=..} interface {value=tapline:office}...
//!           --extcap-config-->      arg {number=0}{call=--since}...
//!           --extcap-dlts-->        dlt {number=1}{name=EN10MB}...
//!           --capture --fifo F-->   pcapng into F: packets, and the counters of the interfaces each second
//! ```
//!
//! The calls and sentences are those of the Wireshark Developer's Guide, section 8.2 (extcap), and extcap(4). Wireshark
//! runs every extcap program when it starts, so a list never waits for a daemon longer than [`DAEMON_PATIENCE`].

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use tapline_filter::{HandleKind, Options};
use tapline_packet::LinkType;
use tapline_syntax::units::size_in;
use tapline_sys::sandbox::AllowedAccess;
use tapline_tap_client::protocol::{OfferedCapture, OfferedInterface};

use crate::args::{FormatArg, SNAP_LEN};
use crate::capture::{self, CaptureArgs};
use crate::interfaces::link_types;
use crate::live::{self, PolicyArg, Since, TAP};
use crate::mistakes::misuse;
use crate::privileges;

/// Name of the program for which Wireshark's extcap folders have a link.
pub(crate) const PROGRAM: &str = "tapline-extcap";

/// Prefix of an interface's name in Wireshark.
const PREFIX: &str = "tapline:";

/// Name of the interface that represents captures which rules withhold.
const WITHHELD: &str = "tapline:";

/// Longest wait for one answer of the daemon while interfaces are listed.
const DAEMON_PATIENCE: Duration = Duration::from_secs(1);

/// Interval of interface statistics: the last block of a capture is lost, because dumpcap closes the pipe before it
/// asks for the end.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(1);

/// Folders in which Wireshark looks for extcap programs, by version and distribution.
const FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu/wireshark",
    "/usr/lib/aarch64-linux-gnu/wireshark",
    "/usr/lib64/wireshark",
    "/usr/lib/wireshark",
    "/usr/libexec/wireshark",
    "/usr/local/lib/wireshark",
    "/usr/local/libexec/wireshark",
];

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline extcap --install                     link the program where Wireshark looks for its kind
  tshark -i tapline:office -f 'tcp port 443'   a capture of tapline serve, by Wireshark's own tools

Wireshark and tshark call the rest: they list captures of the daemon as interfaces, and read packets with the counters of lost
ones. No right is needed but that of the daemon's rules.";

/// Options as Wireshark spells them.
#[derive(Debug, Args)]
pub(crate) struct ExtcapArgs {
    /// List captures as interfaces.
    #[arg(long)]
    extcap_interfaces: bool,
    /// Version of Wireshark.
    #[arg(long, value_name = "VERSION")]
    extcap_version: Option<String>,
    /// List the options of the interface.
    #[arg(long)]
    extcap_config: bool,
    /// List the values of one option again.
    #[arg(long, value_name = "OPTION")]
    extcap_reload_option: Option<String>,
    /// List the link types of the interface.
    #[arg(long)]
    extcap_dlts: bool,
    /// Interface: tapline:NAME.
    #[arg(long, value_name = "INTERFACE")]
    extcap_interface: Option<String>,
    /// Capture filter; without --capture it is only checked.
    #[arg(long, value_name = "FILTER")]
    extcap_capture_filter: Option<String>,
    /// Capture into --fifo.
    #[arg(long, requires = "fifo")]
    capture: bool,
    /// Pipe for packets.
    #[arg(long, value_name = "PATH")]
    fifo: Option<PathBuf>,
    /// Pipe with orders of Wireshark's toolbar; none are offered.
    #[arg(long, value_name = "PATH", hide = true)]
    extcap_control_in: Option<PathBuf>,
    /// Pipe for changes of Wireshark's toolbar; none are offered.
    #[arg(long, value_name = "PATH", hide = true)]
    extcap_control_out: Option<PathBuf>,
    /// Begin with packets of the last TIME (5s, 10m), or with all packets that the daemon still has.
    #[arg(long, value_name = "TIME|all", value_parser = live::since)]
    since: Option<Since>,
    /// Policy for a slow Wireshark. lossy: packets are lost; leased: the daemon keeps them for a bounded time.
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicyArg>,
    /// Keep at most this many bytes of a packet, 1 to 262144.
    #[arg(long, value_name = "BYTES", value_parser = size_in::<u32>(1..=u64::from(SNAP_LEN)))]
    snapshot_length: Option<u32>,
    /// Link the program into Wireshark's folders for extcap programs: those of the machine as root, else the user's
    /// own.
    #[arg(long)]
    install: bool,
    /// With --install: this folder instead.
    #[arg(long, value_name = "DIR", requires = "install")]
    folder: Option<PathBuf>,
    /// The socket of tapline serve. Default: TAPLINE_SOCKET, or /run/tapline/serve.sock.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: &ExtcapArgs) -> Result<ExitCode> {
    if args.capture {
        return capture::run(&capture_args(args)?);
    }
    if args.install {
        return install(args.folder.as_deref()).map(|()| ExitCode::SUCCESS);
    }
    privileges::confine_quietly(&AllowedAccess::default());
    let answer = if args.extcap_interfaces {
        interfaces(args.socket.as_deref())
    } else if args.extcap_config {
        capture_name(args)?;
        let is_reload = args.extcap_reload_option.is_some();
        if is_reload { String::new() } else { CONFIG.to_owned() }
    } else if args.extcap_dlts {
        link_type_sentences(args)?
    } else if let Some(filter) = &args.extcap_capture_filter {
        filter_fault(filter)
    } else {
        misuse!(
            "nothing to do: Wireshark calls this command; `tapline extcap --install` shows it where to find it"
        );
    };
    Ok(io::stdout().write_all(answer.as_bytes()).map(|()| ExitCode::SUCCESS)?)
}

/// Options that Wireshark shows for each interface. All have defaults: a required one keeps the dialog open for ever.
const CONFIG: &str = "\
arg {number=0}{call=--since}{display=Begin in the past}{type=string}{default=0s}{tooltip=Packets of the last time (5s, 10m), or all that the daemon still has}
arg {number=1}{call=--policy}{display=If Wireshark is too slow}{type=selector}{default=lossy}{tooltip=Lost packets are counted in the file}
value {arg=1}{value=lossy}{display=lose packets, and count them}{default=true}
value {arg=1}{value=leased}{display=have the daemon keep packets for a while}{default=false}
arg {number=2}{call=--snapshot-length}{display=Bytes of each packet}{type=unsigned}{range=1,262144}{default=262144}{tooltip=Longer packets are cut}
";

/// Sentences for `--extcap-interfaces`.
fn interfaces(socket: Option<&Path>) -> String {
    let mut text = format!("extcap {{version={}}}{{display=Tapline}}\n", env!("CARGO_PKG_VERSION"));
    match live::captures(socket, DAEMON_PATIENCE) {
        Ok(captures) => captures.iter().for_each(|capture| {
            let _ = writeln!(
                text,
                "interface {{value={PREFIX}{}}}{{display=Tapline {}}}",
                word(&capture.name),
                description(capture)
            );
        }),
        Err(tapline_tap_client::Error::NotAllowed { .. }) => {
            let _ = writeln!(
                text,
                "interface {{value={WITHHELD}}}{{display=Tapline: no right to read (rules of tapline serve)}}"
            );
        }
        // Without a daemon there is nothing to list, and a list is not a place for errors: they would stand in a dialog at
        // each start.
        Err(_) => {}
    }
    text
}

/// Text of a capture in Wireshark's list.
fn description(capture: &OfferedCapture) -> String {
    let names: Vec<_> =
        capture.interfaces.iter().map(interface_name).filter(|name| !name.is_empty()).collect();
    let name = word(&capture.name);
    if names.is_empty() { name } else { format!("{name} ({})", names.join(", ")) }
}

fn interface_name(interface: &OfferedInterface) -> String {
    word(&interface.name)
}

/// A text without what ends a value in a sentence.
fn word(text: &str) -> String {
    text.replace(['{', '}', '\n', '\r'], "_")
}

/// Sentences for `--extcap-dlts`.
fn link_type_sentences(args: &ExtcapArgs) -> Result<String> {
    let name = capture_name(args)?;
    let captures = live::captures(args.socket.as_deref(), DAEMON_PATIENCE)?;
    let capture = captures.iter().find(|capture| capture.name == name);
    let capture = capture
        .with_context(|| format!("no capture '{name}' that may be read: tapline interfaces lists them"))?;
    let mut text = String::new();
    for LinkType(number) in link_types(capture) {
        let name = LinkType(number).name().map_or_else(|| number.to_string(), str::to_owned);
        let _ = writeln!(text, "dlt {{number={number}}}{{name={name}}}{{display={name}}}");
    }
    Ok(text)
}

/// The fault of a filter in one line; empty if it is valid.
fn filter_fault(filter: &str) -> String {
    let options =
        Options { snap_len: SNAP_LEN, netmask: Some(0), handle: HandleKind::Live, ..Options::default() };
    match tapline_filter::compile(filter, &options) {
        Ok(_) => String::new(),
        Err(error) => {
            let place = error.span.and_then(|span| filter.get(span.start..span.end));
            let place = place.map_or_else(String::new, |place| format!(" at '{place}'"));
            format!("{}\n", word(&format!("{}{place}", error.message)))
        }
    }
}

/// The daemon's name of the interface that Wireshark names.
fn capture_name(args: &ExtcapArgs) -> Result<&str> {
    let interface =
        args.extcap_interface.as_deref().context("which interface? --extcap-interface tapline:NAME")?;
    match interface.strip_prefix(PREFIX) {
        Some("") => bail!(
            "the rules of tapline serve let this user read no capture: they name users and groups (docs/serve.md)"
        ),
        Some(name) => Ok(name),
        None => bail!("no interface '{interface}': those of Tapline are {PREFIX}NAME"),
    }
}

/// The capture that Wireshark asks for, as `tapline capture` has it.
fn capture_args(args: &ExtcapArgs) -> Result<CaptureArgs> {
    let mut capture = CaptureArgs::without_arguments();
    capture.interface = vec![format!("{TAP}{}", capture_name(args)?)];
    capture.write.clone_from(&args.fifo);
    capture.format = Some(FormatArg::Pcapng);
    capture.packet_buffered = true;
    capture.statistics_interval = Some(STATISTICS_INTERVAL);
    capture.is_for_wireshark = true;
    capture.snapshot_length = args.snapshot_length.unwrap_or(SNAP_LEN);
    capture.filter = args.extcap_capture_filter.iter().filter(|filter| !filter.is_empty()).cloned().collect();
    // Wireshark passes defaults too: no time is the newest packet.
    capture.tap.since = args.since.filter(|since| *since != Since::Ago(Duration::ZERO));
    capture.tap.policy = args.policy;
    capture.tap.socket.clone_from(&args.socket);
    Ok(capture)
}

/// Links the running program into the folders where Wireshark looks.
fn install(folder: Option<&Path>) -> Result<()> {
    let program = std::env::current_exe().context("cannot find the file of this program")?;
    for folder in folders(folder)? {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let link = folder.join(PROGRAM);
        if fs::symlink_metadata(&link).is_ok_and(|file| file.is_symlink()) {
            fs::remove_file(&link).with_context(|| format!("cannot replace {}", link.display()))?;
        }
        symlink(&program, &link)
            .with_context(|| format!("cannot link {} to {}", link.display(), program.display()))?;
        writeln!(io::stdout(), "{} -> {}", link.display(), program.display())?;
    }
    Ok(())
}

fn folders(named: Option<&Path>) -> Result<Vec<PathBuf>> {
    if let Some(folder) = named {
        return Ok(vec![folder.to_owned()]);
    }
    if tapline_sys::privilege::is_root() {
        let there = FOLDERS.iter().map(Path::new).filter(|folder| folder.is_dir());
        let folders: Vec<_> = there.map(|folder| folder.join("extcap")).collect();
        if folders.is_empty() {
            bail!(
                "Wireshark is not installed in any known folder: name its extcap folder with --folder (tshark -G folders)"
            );
        }
        return Ok(folders);
    }
    // Since Wireshark 4.2; earlier versions have no folder of the user's.
    let home = std::env::var_os("HOME").context("HOME is not set: name a folder with --folder")?;
    Ok(vec![Path::new(&home).join(".local/lib/wireshark/extcap")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_end_no_sentence() {
        let interface = OfferedInterface { name: "eth{0}\n".into(), ..OfferedInterface::default() };
        let capture = OfferedCapture {
            name: "off}ice".into(),
            interfaces: vec![interface],
            ..OfferedCapture::default()
        };
        assert_eq!(description(&capture), "off_ice (eth_0__)");
    }

    #[test]
    fn a_filter_is_judged_in_one_line() {
        assert_eq!(filter_fault("tcp port 443"), "");
        let fault = filter_fault("tcp prot 443");
        assert!(fault.ends_with('\n') && fault.lines().count() == 1, "{fault}");
    }

    #[test]
    fn every_option_has_a_default() {
        let options: Vec<_> = CONFIG.lines().filter(|line| line.starts_with("arg ")).collect();
        assert!(options.len() == 3 && options.iter().all(|line| line.contains("{default=")));
        assert!(!CONFIG.contains("required"));
    }
}
