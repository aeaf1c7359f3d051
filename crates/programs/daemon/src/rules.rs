//! The access rules: a TOML file.
//!
//! ```toml
//! socket = "/run/tapline/serve.sock"
//! mode = "0660"                       # of the socket; a user who cannot open it cannot ask
//! group = "netops"
//! user_time = 200                     # ms of processor time a second, for the readers of each user
//! user_memory = 320                   # MiB for the readers of each user
//!
//! [[capture]]
//! name = "office"                     # tap:office
//! interfaces = ["eth0"]               # xdp:eth0; or file = "trace.pcap"
//! buffer = 256                        # MiB, for each worker and for readers of the same rights
//!
//! [[record]]                          # a capture in a store, with the options of `tapline record`
//! capture = "office"
//! to = "/srv/store"
//! size = "80%"
//!
//! [[publish]]                         # a place of a graph behind a capture, as a capture: tap:dns
//! name = "dns"
//! capture = "office"
//! stages = 'filter("udp port 53") -> sample(1/10)'
//!
//! [[access]]                          # the first that fits counts; without one there is no access
//! captures = ["office"]
//! groups = ["netops"]
//! filter = "not port 22"              # and whatever the reader asks for
//! snap_len = 96
//! policies = ["lossy", "leased"]
//! readers = 8
//! ```
//!
//! Root and the user who started the daemon may do everything.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tapline_sys::disk;
use tapline_sys::peer::Peer;
use tapline_sys::privilege::Identity;
use tapline_tap_client::SOCKET_DEFAULT;

use crate::{Error, PublishRule, RecordRule};

/// The most bytes of a file of rules.
const FILE_LEN_MAX: u64 = 8 << 20;

/// Most bytes of a packet, unless a rule says less.
pub(crate) const SNAP_LEN_MAX: u32 = 262_144;
/// The largest ring that the kernel makes, in MiB: lengths are 32 bits wide there.
const KERNEL_BUFFER_MAX: u32 = 4095;
const READERS_DEFAULT: u32 = 64;
/// Processor time of a user's readers in milliseconds a second, on each thread that captures.
const USER_TIME_DEFAULT: u32 = 200;
/// MiB of a user's readers, in addition to the buffers of one capture.
const USER_MEMORY_DEFAULT: u64 = 256;
const BUFFER_MIB_DEFAULT: u32 = 64;

/// All rules.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Where to listen.
    pub socket: PathBuf,
    /// The mode of the socket, as chmod(1) has it in octal.
    pub mode: String,
    /// The group of the socket; none for the group of the daemon.
    pub group: Option<String>,
    /// Processor time that the readers of each user may take on each thread that captures, in milliseconds a second: 1
    /// to
    /// 1000. Root and the owner of the daemon may take all.
    pub user_time: u32,
    /// Memory that the readers of each user may take in all captures, in MiB: 1 to 1048576; none for 256 MiB and the
    /// buffers of the largest capture. Root and the owner of the daemon may take all.
    pub user_memory: Option<u32>,
    /// The captures.
    #[serde(rename = "capture")]
    pub captures: Vec<CaptureRule>,
    /// Captures that are recorded to stores.
    #[serde(rename = "record")]
    pub records: Vec<RecordRule>,
    /// Stages behind captures, whose packets are captures too.
    #[serde(rename = "publish")]
    pub places: Vec<PublishRule>,
    /// The users who may read captures.
    pub access: Vec<AccessRule>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            socket: SOCKET_DEFAULT.into(),
            mode: "0660".to_owned(),
            group: None,
            user_time: USER_TIME_DEFAULT,
            user_memory: None,
            captures: Vec::new(),
            records: Vec::new(),
            places: Vec::new(),
            access: Vec::new(),
        }
    }
}

/// One capture.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureRule {
    /// The name that readers use.
    pub name: String,
    /// Names, globs, `any`, with `xdp:` before each or none.
    pub interfaces: Vec<String>,
    /// A file to be read instead, at the pace of its readers.
    pub file: Option<PathBuf>,
    /// The network namespace of the interfaces.
    pub netns: Option<String>,
    /// MiB of each buffer, a power of two from 4 on.
    pub buffer: u32,
    /// Bytes kept of each packet.
    pub snap_len: u32,
    /// The filter of the capture, which runs in the kernel.
    pub filter: String,
    /// The filter of packets that are stored for readers that start in the past; `None` for no packet.
    pub history: Option<String>,
    /// Whether its flows are metered for `tapline view`.
    pub view: bool,
    /// Whether unwanted packets are taken from the kernel all the same, to be counted.
    pub count_all: bool,
    /// The readers that get a packet, of those that want it.
    #[serde(rename = "match")]
    pub matching: MatchRule,
    /// Threads that share the packets.
    pub workers: u32,
    /// Whether interfaces receive frames for other hosts.
    pub promiscuous: bool,
    /// MiB of the kernel's ring of each interface and worker; none for the default of a capture.
    pub kernel_buffer: Option<u32>,
    /// Clock of the packets' timestamps.
    pub time_stamps: TimeStamps,
}

/// The readers that get a packet, of those that want it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatchRule {
    /// All of them.
    #[default]
    All,
    /// The first one by [`AccessRule::priority`], then by the number that the reader gives
    /// ([`GroupRequest::priority`](tapline_tap_client::GroupRequest)), then by the order in which they came: as CSPF had it
    /// (Mogul, Rashid, Accetta 1987). Recordings and views of the daemon get their packets anyway.
    First,
}

/// Clock of the packets' timestamps. An adapter's clock has to be synchronized: readers find the past and merge by
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeStamps {
    /// The kernel's.
    #[default]
    Host,
    /// The adapter's.
    Adapter,
}

impl Default for CaptureRule {
    fn default() -> CaptureRule {
        CaptureRule {
            name: String::new(),
            interfaces: Vec::new(),
            file: None,
            netns: None,
            buffer: BUFFER_MIB_DEFAULT,
            snap_len: SNAP_LEN_MAX,
            filter: String::new(),
            history: None,
            view: false,
            count_all: false,
            matching: MatchRule::default(),
            workers: 1,
            promiscuous: true,
            kernel_buffer: None,
            time_stamps: TimeStamps::default(),
        }
    }
}

/// The users who may read a capture, and how.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessRule {
    /// Names of captures; `*` for all.
    pub captures: Vec<String>,
    /// Names or numbers of users.
    pub users: Vec<String>,
    /// Names or numbers of groups.
    pub groups: Vec<String>,
    /// Every user who can open the socket.
    pub everybody: bool,
    /// The snap length of their packets.
    pub filter: String,
    /// Bytes that they see of each packet.
    pub snap_len: u32,
    /// The policies that readers may ask for.
    pub policies: Vec<String>,
    /// Readers at the same time, for each user.
    pub readers: u32,
    /// Whether they may search the stores that the captures are recorded to.
    pub store: bool,
    /// Whether they may pause the captures, for all readers.
    pub control: bool,
    /// Where a packet goes to the first reader alone ([`MatchRule::First`]): the place of their readers, the least
    /// number first. Root and the owner of the daemon have 0.
    pub priority: u32,
}

impl Default for AccessRule {
    fn default() -> AccessRule {
        AccessRule {
            captures: vec!["*".to_owned()],
            users: Vec::new(),
            groups: Vec::new(),
            everybody: false,
            filter: String::new(),
            snap_len: SNAP_LEN_MAX,
            policies: vec!["lossy".to_owned(), "leased".to_owned()],
            readers: READERS_DEFAULT,
            store: false,
            control: false,
            priority: 0,
        }
    }
}

/// A client's process and user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The process.
    pub pid: u32,
    /// The user.
    pub uid: u32,
    /// All groups.
    pub gids: Vec<u32>,
}

impl ClientIdentity {
    /// Identity of a socket's peer: its group, and its groups in the user database.
    pub fn of(peer: Peer) -> ClientIdentity {
        let mut gids = vec![peer.gid];
        gids.extend(Identity::of_uid(peer.uid).map(|identity| identity.groups).unwrap_or_default());
        ClientIdentity { pid: peer.pid, uid: peer.uid, gids }
    }
}

impl Rules {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Rules`], [`Error::Senseless`].
    pub fn read(path: &Path) -> Result<Rules, Error> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let bytes = disk::read_at_most(path, FILE_LEN_MAX).map_err(failed)?;
        if bytes.len() as u64 > FILE_LEN_MAX {
            return Err(failed(io::Error::other(format!("it has more than {FILE_LEN_MAX} bytes"))));
        }
        let text = String::from_utf8(bytes).map_err(|error| failed(io::Error::other(error)))?;
        let rules: Rules =
            toml::from_str(&text).map_err(|source| Error::Rules { path: path.to_owned(), source })?;
        rules.check().map_err(|what| Error::Senseless { path: path.to_owned(), what })?;
        Ok(rules)
    }

    /// Whether they make sense.
    ///
    /// # Errors
    /// What does not, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.captures.is_empty() {
            return Err("there is no [[capture]]: name one, with its interfaces or its file".to_owned());
        }
        self.socket_mode()?;
        if !(1..=1000).contains(&self.user_time) {
            return Err(format!("user_time = {}: milliseconds a second, 1 to 1000", self.user_time));
        }
        if let Some(mib) = self.user_memory.filter(|mib| !(1..=1 << 20).contains(mib)) {
            return Err(format!("user_memory = {mib}: MiB, 1 to 1048576"));
        }
        for (at, capture) in self.captures.iter().enumerate() {
            capture.check()?;
            if self.captures[..at].iter().any(|other| other.name == capture.name) {
                return Err(format!("two captures are called {:?}", capture.name));
            }
        }
        for (at, record) in self.records.iter().enumerate() {
            record.check(&self.captures)?;
            if self.records[..at].iter().any(|other| other.to == record.to) {
                let store = record.to.display();
                return Err(format!("two [[record]] write to {store}: a store has one recorder"));
            }
        }
        for (at, place) in self.places.iter().enumerate() {
            place.check(&self.captures)?;
            let before = self.places[..at].iter().map(|other| &other.name);
            if self.captures.iter().map(|capture| &capture.name).chain(before).any(|name| *name == place.name)
            {
                return Err(format!("two captures are called {:?}: one is a [[publish]]", place.name));
            }
        }
        let captures = self.captures.iter().map(|capture| capture.name.as_str());
        let names: Vec<&str> = captures.chain(self.places.iter().map(|place| place.name.as_str())).collect();
        self.access.iter().try_for_each(|access| access.check(&names))
    }

    /// Names of users and groups that the user database does not have: a typing error gives a user the rights of the
    /// next rule that fits.
    pub fn unknown(&self) -> Vec<String> {
        let is_user = |name: &&String| name.parse::<u32>().is_err() && Identity::of_name(name).is_none();
        let is_group = |name: &&String| name.parse::<u32>().is_err() && group_of_name(name).is_none();
        let users = self.access.iter().flat_map(|access| access.users.iter().filter(is_user));
        let groups = self.access.iter().flat_map(|access| access.groups.iter().filter(is_group));
        let tell =
            |kind: &str, name: &String| format!("[[access]] names the {kind} {name:?}, and there is none");
        users.map(|name| tell("user", name)).chain(groups.map(|name| tell("group", name))).collect()
    }

    /// Bytes that the readers of a user may take.
    pub(crate) fn memory_of_user(&self) -> u64 {
        let buffers = |capture: &CaptureRule| u64::from(capture.buffer) * u64::from(capture.workers);
        let of_places = self.places.iter().map(|place| u64::from(place.buffer));
        let largest = self.captures.iter().map(buffers).chain(of_places).max().unwrap_or(0);
        self.user_memory.map_or(USER_MEMORY_DEFAULT + largest, u64::from) << 20
    }

    pub(crate) fn socket_mode(&self) -> Result<u32, String> {
        let mode = u32::from_str_radix(&self.mode, 8).ok().filter(|mode| *mode <= 0o777);
        mode.ok_or_else(|| format!("mode = {:?}: it is an octal number such as \"0660\"", self.mode))
    }

    /// The rights of a client on a capture; `None` for none.
    pub(crate) fn access(&self, who: &ClientIdentity, capture: &str, ours: u32) -> Option<AccessRule> {
        if who.uid == 0 || who.uid == ours {
            let policies = ["lossy", "leased", "lossless"].map(str::to_owned).to_vec();
            return Some(AccessRule {
                policies,
                readers: u32::MAX,
                store: true,
                control: true,
                ..AccessRule::default()
            });
        }
        self.access.iter().find(|access| access.is_for(who, capture)).cloned()
    }
}

impl CaptureRule {
    pub(crate) fn check(&self) -> Result<(), String> {
        let CaptureRule { name, buffer, .. } = self;
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        if !is_name(name) {
            return Err(format!("name = {name:?}: letters, digits, and - _ . between them"));
        }
        if self.interfaces.is_empty() == self.file.is_none() {
            return Err(format!("capture {name:?}: it has either interfaces or a file"));
        }
        if !buffer.is_power_of_two() || !(4..=1 << 16).contains(buffer) {
            return Err(format!("capture {name:?}: buffer = {buffer}: MiB, a power of two from 4 to 65536"));
        }
        if !(1..=SNAP_LEN_MAX).contains(&self.snap_len) {
            return Err(format!("capture {name:?}: snap_len = {}: 1 to {SNAP_LEN_MAX}", self.snap_len));
        }
        if !(1..=64).contains(&self.workers) || self.file.is_some() && self.workers > 1 {
            return Err(format!("capture {name:?}: workers = {}: 1 to 64, of a file 1", self.workers));
        }
        if let Some(len) = self.kernel_buffer.filter(|len| !(1..=KERNEL_BUFFER_MAX).contains(len)) {
            return Err(format!("capture {name:?}: kernel_buffer = {len}: MiB, 1 to {KERNEL_BUFFER_MAX}"));
        }
        let texts = [Some(self.filter.as_str()), self.history.as_deref()];
        texts.into_iter().flatten().try_for_each(|text| parses(name, text))
    }
}

impl AccessRule {
    fn check(&self, captures: &[&str]) -> Result<(), String> {
        let is_known = |name: &&String| *name == "*" || captures.contains(&name.as_str());
        if let Some(name) = self.captures.iter().find(|name| !is_known(name)) {
            return Err(format!("[[access]] names the capture {name:?}, and there is none"));
        }
        if self.users.is_empty() && self.groups.is_empty() && !self.everybody {
            return Err("[[access]] names no user: give users, groups or everybody = true".to_owned());
        }
        if let Some(policy) =
            self.policies.iter().find(|name| !["lossy", "leased", "lossless"].contains(&name.as_str()))
        {
            return Err(format!("policies: {policy:?}; there are lossy, leased and lossless"));
        }
        if self.policies.is_empty() || self.readers == 0 {
            let what = if self.readers == 0 { "readers = 0" } else { "policies = []" };
            return Err(format!("[[access]] {what}: users without access need no rule"));
        }
        if self.snap_len == 0 {
            return Err("[[access]] snap_len = 0: users without access need no rule".to_owned());
        }
        parses("*", &self.filter)
    }

    fn is_for(&self, who: &ClientIdentity, capture: &str) -> bool {
        let user = Identity::of_uid(who.uid).map(|identity| identity.name).unwrap_or_default();
        let is_user = |name: &String| *name == user || name.parse() == Ok(who.uid);
        let is_group = |name: &String| {
            group_of_name(name).or_else(|| name.parse().ok()).is_some_and(|gid| who.gids.contains(&gid))
        };
        self.captures.iter().any(|name| name == "*" || name == capture)
            && (self.everybody || self.users.iter().any(is_user) || self.groups.iter().any(is_group))
    }
}

/// The number of a group, from /etc/group.
pub(crate) fn group_of_name(name: &str) -> Option<u32> {
    let text = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

pub(crate) fn parses(capture: &str, text: &str) -> Result<(), String> {
    match tapline_filter::parse(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("capture {capture:?}: {}", error.render(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Result<Rules, String> {
        let rules: Rules = toml::from_str(text).map_err(|error| error.to_string())?;
        rules.check().map(|()| rules)
    }

    const CAPTURE: &str = "[[capture]]\nname = \"office\"\ninterfaces = [\"eth0\"]\n";

    #[test]
    fn what_makes_no_sense_is_said() {
        let access = |text: &str| format!("{CAPTURE}[[access]]\n{text}\n");
        let record = |text: &str| format!("{CAPTURE}[[record]]\n{text}\n");
        for (text, word) in [
            ("".to_owned(), "there is no [[capture]]"),
            ("mode = \"rw\"\n".to_owned() + CAPTURE, "octal"),
            (CAPTURE.replace("office", "a/b"), "letters, digits"),
            (CAPTURE.to_owned() + CAPTURE, "two captures"),
            (CAPTURE.to_owned() + "file = \"x\"\n", "either interfaces or a file"),
            (CAPTURE.to_owned() + "buffer = 5\n", "power of two"),
            ("user_time = 0\n".to_owned() + CAPTURE, "1 to 1000"),
            ("user_memory = 0\n".to_owned() + CAPTURE, "1 to 1048576"),
            (CAPTURE.to_owned() + "kernel_buffer = 4096\n", "1 to 4095"),
            (CAPTURE.to_owned() + "match = \"last\"\n", "expected `all` or `first`"),
            (CAPTURE.to_owned() + "time_stamps = \"adapter_unsynced\"\n", "expected `host` or `adapter`"),
            (CAPTURE.to_owned() + "filter = \"tcp port\"\n", "^"),
            (CAPTURE.to_owned() + "colour = 1\n", "unknown field"),
            (record("to = \"/srv/a\""), "names the capture \"\", and there is none"),
            (record("capture = \"office\""), "to = DIRECTORY"),
            (record("capture = \"office\"\nto = \"/a\"\nfilter = \"udp or\""), "^"),
            (record("capture = \"office\"\nto = \"/a\"\ncolour = 1"), "unknown field `colour`"),
            (
                record("capture = \"office\"\nto = \"/a\"\n[[record]]\ncapture = \"office\"\nto = \"/a\""),
                "one recorder",
            ),
            (
                record("capture = \"trace\"\nto = \"/a\"\n[[capture]]\nname = \"trace\"\nfile = \"x\""),
                "tapline record -r",
            ),
            (access("captures = [\"home\"]\neverybody = true"), "\"home\", and there is none"),
            (access("filter = \"udp\""), "names no user"),
            (access("everybody = true\npolicies = [\"kind\"]"), "there are lossy"),
            (access("everybody = true\npolicies = []"), "need no rule"),
            (access("everybody = true\nreaders = 0"), "need no rule"),
        ] {
            let error = rules(&text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert_eq!(rules(CAPTURE).unwrap().captures[0].buffer, BUFFER_MIB_DEFAULT);
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let text = format!(
            "{CAPTURE}[[access]]\nusers = [\"1001\"]\nfilter = \"udp\"\n[[access]]\ngroups = [\"77\"]\nfilter = \"arp\"\n"
        );
        let rules = rules(&text).unwrap();
        let filter = |uid, gids: &[u32]| {
            let who = ClientIdentity { pid: 1, uid, gids: gids.to_vec() };
            rules.access(&who, "office", 500).map(|access| access.filter)
        };
        assert_eq!(filter(1001, &[77]), Some("udp".to_owned()));
        assert_eq!(filter(1002, &[5, 77]), Some("arp".to_owned()));
        assert_eq!(filter(1002, &[5]), None);
        for all in [0, 500] {
            assert_eq!(filter(all, &[]), Some(String::new()));
        }
    }
}
