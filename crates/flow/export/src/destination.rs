//! Destinations as users write them.
//!
//! ```text
//! json:NAME   csv:NAME   parquet:DIR                                                rows
//! [udp://]HOST[:PORT]   tcp://HOST[:PORT]   tls://HOST[:PORT]   file:NAME           messages
//! batch+file:NAME[?format=json]   batch+stdout:   http://[USER@]HOST[:PORT]/PATH   https://...
//! clickhouse://[USER@]HOST[:PORT][+HOST[:PORT]...]/DB.TABLE[?create=yes&old=yes&tls=yes]
//! kafka://[USER@]HOST[:PORT][+HOST[:PORT]...]/TOPIC[?key=flow&properties=FILE]
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

use tapline_file::Compression;
use tapline_flow::export::ExportTarget;

use crate::kafka_address::{BLOCK_MAX, KafkaAddress, MessageKey};
use crate::{Carrier, Encoding, Error, FileTarget, Schema, Threaded};

/// The most bytes of a file with a secret.
const SECRET_MAX: u64 = 4096;

/// A destination of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Rows in a file of this format, or in a directory of Parquet.
    Rows(&'static str, PathBuf),
    /// Messages of IPFIX or NetFlow to a collector, or in a file.
    Messages(ExportTarget),
    /// Blocks to a receiver that acknowledges them.
    Blocks(Receiver),
}

/// Formats of rows.
const ROWS: [&str; 3] = ["json", "csv", "parquet"];

/// Beginnings of destinations, with the names that follow them.
const FORMS: [(&str, &str); 11] = [
    ("json", "json:NAME"),
    ("csv", "csv:NAME"),
    ("parquet", "parquet:DIRECTORY"),
    ("file", "file:NAME"),
    ("udp", "udp://HOST:PORT"),
    ("tcp", "tcp://HOST:PORT"),
    ("tls", "tls://HOST:PORT"),
    ("http", "http://HOST/PATH"),
    ("https", "https://HOST/PATH"),
    ("clickhouse", "clickhouse://HOST/DB.TABLE"),
    ("kafka", "kafka://HOST/TOPIC"),
];

impl Destination {
    /// Destinations with commas between them, each with its text. One without a scheme is a collector.
    ///
    /// # Errors
    /// [`Error::Collector`] and [`Error::Destination`] for the first that is wrong.
    pub fn list(text: &str) -> Result<Vec<(&str, Destination)>, Error> {
        let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        texts.map(|text| Ok((text, Destination::parse(text)?))).collect()
    }

    fn parse(text: &str) -> Result<Destination, Error> {
        let (format, name) = text.split_once(':').unwrap_or((text, ""));
        if let Some(format) = ROWS.into_iter().find(|known| *known == format && !name.is_empty()) {
            return Ok(Destination::Rows(format, name.into()));
        }
        if SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return Receiver::parse(text).map(Destination::Blocks);
        }
        let begin = text.strip_suffix("//").unwrap_or(text).strip_suffix(':');
        if let Some((_, form)) = FORMS.iter().find(|(known, _)| begin == Some(known)) {
            let why = format!("the name is missing: {form}");
            return Err(Error::Destination { text: text.to_owned(), why });
        }
        let target = text.parse().map_err(|error: tapline_flow::Error| Error::Collector(error.to_string()));
        target.map(Destination::Messages)
    }

    /// The file or directory that is written, if it is one; `-` is standard output.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Destination::Rows(_, path) | Destination::Messages(ExportTarget::File(path)) => Some(path),
            Destination::Messages(_) => None,
            Destination::Blocks(receiver) => receiver.file(),
        }
    }
}

/// A password or token; it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The first line of a file.
    ///
    /// # Errors
    /// [`Error::Open`] if it cannot be read, or has none.
    pub fn of_file(path: &Path) -> Result<Secret, Error> {
        let fail = |source| Error::Open { name: path.display().to_string(), source };
        let bytes = tapline_sys::disk::read_at_most(path, SECRET_MAX).map_err(fail)?;
        let text = String::from_utf8_lossy(&bytes);
        match text.lines().next().map(str::trim).filter(|line| !line.is_empty()) {
            Some(line) => Ok(Secret(line.to_owned())),
            None => Err(fail(std::io::Error::other("it has no password or token in its first line"))),
        }
    }

    #[cfg(any(feature = "http", feature = "kafka"))]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A table, as destinations name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableAddress {
    /// `http://HOST:PORT`, of which each is asked until one answers.
    pub(crate) endpoints: Vec<String>,
    /// `db.table`, of letters, digits and underscores.
    pub(crate) table: String,
    /// The server knows neither tokens nor new types.
    pub(crate) is_old: bool,
    /// The table is made if it is not there.
    pub(crate) creates: bool,
}

/// The port of ClickHouse's HTTP, and with TLS.
const CLICKHOUSE_PORT: u16 = 8123;
const CLICKHOUSE_TLS_PORT: u16 = 8443;

/// The place that blocks go to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReceiverAddress {
    File(PathBuf),
    Http(String),
    ClickHouse(TableAddress),
    Kafka(KafkaAddress),
}

/// A receiver of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    place: ReceiverAddress,
    encoding: Encoding,
    /// The compression of blocks on their way, where the receiver is a server.
    compression: Option<Compression>,
    /// The user before the host.
    user: Option<String>,
    /// The columns of blocks, for receivers that have to know them.
    schema: Schema,
}

/// Beginnings of receivers, those of files first.
const SCHEMES: [&str; 6] =
    ["batch+file:", "batch+stdout:", "http://", "https://", "clickhouse://", "kafka://"];

impl Receiver {
    /// Whether a text begins as a receiver on the network does.
    pub fn is_meant(text: &str) -> bool {
        SCHEMES[2..].iter().any(|scheme| text.starts_with(scheme))
    }

    /// The receiver of a text.
    ///
    /// # Errors
    /// [`Error::Destination`] for another text; for one with a password, which would end in lists of processes and logs.
    pub fn parse(text: &str) -> Result<Receiver, Error> {
        let (rest, Settings { encoding: given, compression }) = take_settings(text)?;
        let wrong = |why: &str| Error::Destination { text: without_password(text), why: why.to_owned() };
        let scheme = SCHEMES.into_iter().find(|scheme| rest.starts_with(scheme));
        let scheme = scheme.ok_or_else(|| {
            wrong("it begins with batch+file:, batch+stdout:, http://, https://, clickhouse:// or kafka://")
        })?;
        let to = &rest[scheme.len()..];
        let (place, user) = match scheme {
            "batch+stdout:" if to.is_empty() => (ReceiverAddress::File("-".into()), None),
            "batch+stdout:" => return Err(wrong("standard output has no name")),
            "batch+file:" if to.is_empty() => return Err(wrong("the name of the file is missing")),
            "batch+file:" => (ReceiverAddress::File(to.into()), None),
            "clickhouse://" => {
                let (user, rest) = take_user(to).map_err(&wrong)?;
                let address = table_address(rest).map_err(|why| wrong(&why))?;
                if given.is_some_and(|encoding| encoding != Encoding::Native) {
                    return Err(wrong("ClickHouse gets native blocks: leave format= out"));
                }
                (ReceiverAddress::ClickHouse(address), user)
            }
            "kafka://" => {
                let (user, rest) = take_user(to).map_err(&wrong)?;
                let address = KafkaAddress::parse(rest).map_err(|why| wrong(&why))?;
                if compression == Some(Compression::Gzip) {
                    return Err(wrong("messages of Kafka are compressed with lz4 or zstd"));
                }
                (ReceiverAddress::Kafka(address), user)
            }
            _ => {
                let (user, host) = take_user(to).map_err(&wrong)?;
                if host.is_empty() || host.starts_with(['/', ':', '?']) {
                    return Err(wrong("the host is missing"));
                }
                (ReceiverAddress::Http(format!("{scheme}{host}")), user)
            }
        };
        if compression.is_some() && matches!(place, ReceiverAddress::File(_)) {
            return Err(wrong(
                "compress= is for servers: a file is compressed if its name ends in .gz, .zst or .lz4",
            ));
        }
        if let (ReceiverAddress::File(_), Some(encoding)) =
            (&place, given.filter(|encoding| !encoding.is_joinable()))
        {
            let name = encoding.name();
            return Err(wrong(&format!(
                "consecutive blocks of {name} are not a file: send them to a server, or write parquet:DIR"
            )));
        }
        let usual = if matches!(place, ReceiverAddress::ClickHouse(_)) {
            Encoding::Native
        } else {
            Encoding::JsonLines
        };
        Ok(Receiver { place, encoding: given.unwrap_or(usual), compression, user, schema: Schema::default() })
    }

    /// The receiver of chunks of packets.
    ///
    /// # Errors
    /// [`Error::Destination`] if it takes flows alone, or in a form of flows.
    pub fn of_packets(text: &str) -> Result<Receiver, Error> {
        let wrong = |why: &str| Error::Destination { text: without_password(text), why: why.to_owned() };
        let (_, settings) = take_settings(text)?;
        let to = Receiver::parse(text)?;
        match to.place {
            ReceiverAddress::ClickHouse(_) => Err(wrong("its tables have flows: probe --export")),
            ReceiverAddress::Kafka(KafkaAddress { key: MessageKey::Flow, .. }) => {
                Err(wrong("a chunk has packets of many flows: key=sensor or key=none"))
            }
            _ if settings.encoding.is_some() => {
                Err(wrong("packets are sections of pcapng: leave format= out"))
            }
            _ => Ok(Receiver { encoding: Encoding::Pcapng, ..to }),
        }
    }

    /// The form of its blocks.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether the flows of a block are those of one key group.
    pub fn is_keyed_by_flow(&self) -> bool {
        matches!(&self.place, ReceiverAddress::Kafka(address) if address.key == MessageKey::Flow)
    }

    /// Whether the receiver is of before ClickHouse 20.6, which lacks types that blocks have else.
    pub fn is_old(&self) -> bool {
        matches!(&self.place, ReceiverAddress::ClickHouse(address) if address.is_old)
    }

    /// Sets the columns of blocks, which a table is made of.
    pub fn set_schema(&mut self, schema: Schema) {
        self.schema = schema;
    }

    /// The file that is written, if it is one; `-` is standard output.
    pub fn file(&self) -> Option<&Path> {
        match &self.place {
            ReceiverAddress::File(path) => Some(path),
            _ => None,
        }
    }

    /// Whether blocks go over the network.
    pub fn is_remote(&self) -> bool {
        !matches!(self.place, ReceiverAddress::File(_))
    }

    /// Files that [`open`](Self::open) reads: properties of a client of Kafka, and certificates and keys that they name.
    pub fn files_read(&self) -> Vec<PathBuf> {
        #[cfg(feature = "kafka")]
        if let ReceiverAddress::Kafka(KafkaAddress { properties: Some(file), .. }) = &self.place {
            return crate::kafka_properties::files(file);
        }
        Vec::new()
    }

    /// The most bytes of a block that the receiver takes.
    pub fn block_max(&self) -> usize {
        match &self.place {
            ReceiverAddress::Kafka(_) => BLOCK_MAX,
            _ => usize::MAX,
        }
    }

    /// A name that may be that of a folder, another for each destination.
    pub fn slug(&self) -> String {
        let text = self.to_string();
        let hash = text
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let safe = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        format!("{}-{hash:08x}", text.chars().map(safe).take(40).collect::<String>())
    }

    /// Opens the way there. No connection is made before the first block, but to brokers of Kafka, which are asked for
    /// the topic.
    ///
    /// # Errors
    /// [`Error::Open`] for a file that cannot be made; [`Error::Topic`] for a topic that the brokers refuse;
    /// [`Error::NoHttp`] and [`Error::NoKafka`] for a receiver that this build lacks.
    pub fn open(&self, secret: Option<Secret>) -> Result<Box<dyn Carrier>, Error> {
        match &self.place {
            ReceiverAddress::File(path) => Ok(Box::new(Threaded::start(FileTarget::create(path)?)?)),
            #[cfg(feature = "http")]
            ReceiverAddress::Http(url) => {
                let target =
                    crate::http::HttpTarget::new(url, self.compression, self.user.as_deref(), secret);
                Ok(Box::new(Threaded::start(target)?))
            }
            #[cfg(feature = "http")]
            ReceiverAddress::ClickHouse(address) => {
                let (name, user, schema) = (self.to_string(), self.user.clone(), self.schema.clone());
                let address = address.clone();
                let mut target =
                    crate::clickhouse::ClickHouseTarget::new(address, name, user, secret, schema);
                target.set_compression(self.compression);
                target.check()?;
                Ok(Box::new(Threaded::start(target)?))
            }
            #[cfg(feature = "kafka")]
            ReceiverAddress::Kafka(address) => {
                let (user, secret) = (self.user.as_deref(), secret.as_ref());
                let carrier = crate::kafka::KafkaCarrier::open(address, self.compression, user, secret)?;
                Ok(Box::new(carrier))
            }
            #[cfg(not(feature = "http"))]
            ReceiverAddress::Http(_) | ReceiverAddress::ClickHouse(_) => {
                drop(secret);
                Err(Error::NoHttp)
            }
            #[cfg(not(feature = "kafka"))]
            ReceiverAddress::Kafka(_) => Err(Error::NoKafka),
        }
    }
}

impl fmt::Display for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ReceiverAddress::File(path) if path == Path::new("-") => f.write_str("batch+stdout:"),
            ReceiverAddress::File(path) => write!(f, "batch+file:{}", path.display()),
            ReceiverAddress::Http(url) => f.write_str(url),
            ReceiverAddress::ClickHouse(address) => {
                let host =
                    |endpoint: &String| endpoint.split_once("//").map_or("", |(_, host)| host).to_owned();
                let hosts: Vec<String> = address.endpoints.iter().map(host).collect();
                write!(f, "clickhouse://{}/{}", hosts.join("+"), address.table)
            }
            ReceiverAddress::Kafka(address) => write!(f, "{address}"),
        }
    }
}

/// Tapline's own settings behind the question mark.
#[derive(Clone, Copy, Default)]
struct Settings {
    encoding: Option<Encoding>,
    compression: Option<Compression>,
}

/// Ways to compress bodies over HTTP, by the names of content codings.
const COMPRESSIONS: [Compression; 3] = [Compression::Gzip, Compression::Zstd, Compression::Lz4];

/// Takes `format=NAME` and `compress=NAME` out of the part behind the question mark; the rest is the server's.
fn take_settings(text: &str) -> Result<(String, Settings), Error> {
    let mut settings = Settings::default();
    let Some((head, query)) = text.rsplit_once('?') else { return Ok((text.to_owned(), settings)) };
    let wrong = |why: String| Error::Destination { text: without_password(text), why };
    let mut others = Vec::new();
    for part in query.split('&') {
        match part.split_once('=') {
            Some(("format", name)) => settings.encoding = Some(encoding_of(name).map_err(&wrong)?),
            Some(("compress", name)) => {
                let found = COMPRESSIONS.into_iter().find(|compression| compression.name() == name);
                let why = || wrong(format!("unknown compression `{name}`; expected gzip, zstd or lz4"));
                settings.compression = Some(found.ok_or_else(why)?);
            }
            _ => others.push(part),
        }
    }
    if settings.encoding.is_none() && settings.compression.is_none() {
        return Ok((text.to_owned(), settings));
    }
    let rest = if others.is_empty() { head.to_owned() } else { format!("{head}?{}", others.join("&")) };
    Ok((rest, settings))
}

fn encoding_of(name: &str) -> Result<Encoding, String> {
    Encoding::of_name(name).filter(|encoding| encoding.is_of_flows()).ok_or_else(|| {
        let known = Encoding::ALL.into_iter().filter(|encoding| encoding.is_of_flows());
        let known: Vec<&str> = known.map(Encoding::name).collect();
        format!("unknown format `{name}`; expected one of {}", known.join(", "))
    })
}

/// The table behind `clickhouse://USER@`.
fn table_address(text: &str) -> Result<TableAddress, String> {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let (hosts, table) = path.split_once('/').ok_or("the table is missing: clickhouse://HOST/DB.TABLE")?;
    let is_name = |name: &str| {
        name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    let parts: Vec<&str> = table.split('.').collect();
    if parts.len() > 2 || !parts.iter().all(|part| is_name(part)) {
        return Err(format!("`{table}` is not a table: DB.TABLE, of letters, digits and underscores"));
    }
    let (mut is_old, mut creates, mut has_tls) = (false, false, false);
    for setting in query.split('&').filter(|setting| !setting.is_empty()) {
        match setting {
            "old=yes" => is_old = true,
            "create=yes" => creates = true,
            "tls=yes" => has_tls = true,
            _ => return Err(format!("unknown setting `{setting}`; expected create=yes, old=yes or tls=yes")),
        }
    }
    let (scheme, port) = if has_tls { ("https", CLICKHOUSE_TLS_PORT) } else { ("http", CLICKHOUSE_PORT) };
    let endpoint = |host: &str| match host.rsplit_once(':') {
        Some((_, digits)) if digits.parse::<u16>().is_ok() => format!("{scheme}://{host}"),
        _ => format!("{scheme}://{host}:{port}"),
    };
    if hosts.split('+').any(str::is_empty) {
        return Err("a host is missing".to_owned());
    }
    let endpoints = hosts.split('+').map(endpoint).collect();
    Ok(TableAddress { endpoints, table: table.to_owned(), is_old, creates })
}

/// The user before the host, and the rest.
pub(crate) fn take_user(to: &str) -> Result<(Option<String>, &str), &'static str> {
    let end = to.find(['/', '?']).unwrap_or(to.len());
    match to[..end].rsplit_once('@') {
        None => Ok((None, to)),
        Some((user, _)) if user.contains(':') => {
            Err("a password has no place there: write it into a file, and name it with --export-secret")
        }
        Some((user, _)) => Ok((Some(user.to_owned()), &to[user.len() + 1..])),
    }
}

/// The text for messages, without the part between `//` and `@`.
pub(crate) fn without_password(text: &str) -> String {
    match (text.find("//"), text.rfind('@')) {
        (Some(from), Some(to)) if from + 2 < to => format!("{}...{}", &text[..from + 2], &text[to..]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_destination_is_known() {
        let text = "json:-,h:4739, http://h/p,batch+stdout:,udp://a,https://b/?format=json,file:-";
        let error =
            Destination::list("json:a,foo:x").expect_err("it ends in a port that is none").to_string();
        assert!(error.contains("`foo:x`: the port") && error.contains("lines of text"), "{error}");
        for (begin, form) in FORMS {
            let error = Destination::list(&format!("{begin}:")).expect_err("it has no name").to_string();
            assert!(error.contains("the name is missing") && error.contains(form), "{error}");
        }
        let all = Destination::list(text).expect("all are known");
        let texts: Vec<&str> = all.iter().map(|(text, _)| *text).collect();
        assert_eq!(texts.join(","), text.replace(' ', ""));
        let kinds = all.iter().map(|(_, to)| match to {
            Destination::Rows(format, _) => *format,
            Destination::Messages(_) => "messages",
            Destination::Blocks(_) => "blocks",
        });
        let expected = ["json", "messages", "blocks", "blocks", "messages", "blocks", "messages"];
        assert!(kinds.eq(expected));
        let files: Vec<bool> = all.iter().map(|(_, to)| to.file() == Some(Path::new("-"))).collect();
        assert_eq!(files, [true, false, false, true, false, false, true]);
        assert_eq!(Destination::list("").expect("none"), []);
    }

    #[test]
    fn receivers_are_read() {
        let parse = |text: &str| Receiver::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(parse("batch+file:a.json").file(), Some(Path::new("a.json")));
        assert_eq!(parse("batch+stdout:").file(), Some(Path::new("-")));
        assert_eq!(parse("batch+file:a?format=json").to_string(), "batch+file:a");
        let url = parse("https://me@host:8/path?a=b&format=json&c=d");
        assert_eq!(
            (url.to_string().as_str(), url.user.as_deref()),
            ("https://host:8/path?a=b&c=d", Some("me"))
        );
        assert!(url.is_remote() && url.file().is_none());
        assert_eq!(parse("http://host/@x").user, None);
        let table = parse("clickhouse://me@a+b:9/net.flows?create=yes");
        assert_eq!(
            (table.to_string().as_str(), table.encoding()),
            ("clickhouse://a:8123+b:9/net.flows", Encoding::Native)
        );
        assert!(
            parse("clickhouse://a/flows?old=yes&tls=yes").is_old() && !table.is_old() && table.is_remote()
        );
        let topic = parse("kafka://me@a+b:9/flows?format=native&compress=zstd&key=none");
        assert_eq!(
            (topic.to_string().as_str(), topic.encoding(), topic.user.as_deref()),
            ("kafka://a:9092+b:9/flows", Encoding::Native, Some("me"))
        );
        assert!(topic.is_remote() && topic.block_max() < 1_000_000 && table.block_max() == usize::MAX);
        assert_ne!(parse("http://host/a.b").slug(), parse("http://host/a-b").slug());
        assert!(
            parse("http://host/../..")
                .slug()
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
        );
    }

    #[test]
    fn what_is_wrong_is_told_without_passwords() {
        for (text, why) in [
            ("http://me:sesame@host/", "a file"),
            ("ftp://me:sesame@host/", "begins with"),
            ("http:///path", "host is missing"),
            ("clickhouse://a:sesame@h/t", "a file"),
            ("clickhouse://h", "table is missing"),
            ("clickhouse://h/a.b;drop", "not a table"),
            ("clickhouse://h+/a", "host is missing"),
            ("clickhouse://h/a?x=y", "unknown setting"),
            ("clickhouse://h/a?format=json", "native"),
            ("kafka://a:sesame@h/t", "a file"),
            ("kafka://h", "topic is missing"),
            ("kafka://h/t?compress=gzip", "lz4 or zstd"),
            ("batch+file:", "name of the file"),
            ("batch+stdout:a", "no name"),
            ("batch+file:a?compress=lz4", ".lz4"),
            ("http://h/?compress=xz", "expected gzip, zstd or lz4"),
            ("batch+file:a?format=xml", "expected one of json, goflow, ipfix, native, arrow, parquet"),
            ("batch+file:a?format=parquet", "parquet:DIR"),
            (
                "http://me:sesame@host/?format=xml",
                "expected one of json, goflow, ipfix, native, arrow, parquet",
            ),
        ] {
            let error = Receiver::parse(text).expect_err(text).to_string();
            assert!(error.contains(why) && !error.contains("sesame"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_a_line_and_never_shown() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("secret");
        std::fs::write(&path, "sesame \nmore\n").expect("there is room");
        let secret = Secret::of_file(&path).expect("a line");
        assert_eq!((secret.0.as_str(), format!("{secret:?}").as_str()), ("sesame", "Secret"));
        std::fs::write(&path, "\n").expect("there is room");
        assert!(Secret::of_file(&path).is_err());
    }
}
