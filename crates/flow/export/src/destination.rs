//! Destinations as users write them.
//!
//! ```text
//! batch+file:NAME[?format=json]   batch+stdout:   http://[USER@]HOST[:PORT]/PATH   https://...
//! clickhouse://[USER@]HOST[:PORT][+HOST[:PORT]...]/DB.TABLE[?create=yes&old=yes&tls=yes]
//! kafka://[USER@]HOST[:PORT][+HOST[:PORT]...]/TOPIC[?key=flow&properties=FILE]
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

use tapline_file::Compression;

use crate::kafka_address::{BLOCK_MAX, KafkaAddress, MessageKey};
use crate::{Carrier, Encoding, Error, FileTarget, Schema, Threaded};

/// The most bytes of a file with a secret.
const SECRET_MAX: u64 = 4096;

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
enum DestinationAddress {
    File(PathBuf),
    Http(String),
    ClickHouse(TableAddress),
    Kafka(KafkaAddress),
}

/// A destination of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    place: DestinationAddress,
    encoding: Encoding,
    /// The compression of blocks on their way, where the receiver is a server.
    compression: Option<Compression>,
    /// The user before the host.
    user: Option<String>,
    /// The columns of blocks, for receivers that have to know them.
    schema: Schema,
}

/// Beginnings of destinations.
const SCHEMES: [&str; 6] =
    ["batch+file:", "batch+stdout:", "http://", "https://", "clickhouse://", "kafka://"];

impl Destination {
    /// Whether a text begins as a destination of blocks does.
    pub fn is_meant(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// The destination of a text.
    ///
    /// # Errors
    /// [`Error::Destination`] for another text; for one with a password, which would end in lists of processes and logs.
    pub fn parse(text: &str) -> Result<Destination, Error> {
        let (rest, Settings { encoding: given, compression }) = take_settings(text)?;
        let wrong = |why: &str| Error::Destination { text: without_password(text), why: why.to_owned() };
        let scheme = SCHEMES.into_iter().find(|scheme| rest.starts_with(scheme));
        let scheme = scheme.ok_or_else(|| {
            wrong("it begins with batch+file:, batch+stdout:, http://, https://, clickhouse:// or kafka://")
        })?;
        let to = &rest[scheme.len()..];
        let (place, user) = match scheme {
            "batch+stdout:" if to.is_empty() => (DestinationAddress::File("-".into()), None),
            "batch+stdout:" => return Err(wrong("standard output has no name")),
            "batch+file:" if to.is_empty() => return Err(wrong("the name of the file is missing")),
            "batch+file:" => (DestinationAddress::File(to.into()), None),
            "clickhouse://" => {
                let (user, rest) = take_user(to).map_err(&wrong)?;
                let address = table_address(rest).map_err(|why| wrong(&why))?;
                if given.is_some_and(|encoding| encoding != Encoding::Native) {
                    return Err(wrong("ClickHouse gets native blocks: leave format= out"));
                }
                (DestinationAddress::ClickHouse(address), user)
            }
            "kafka://" => {
                let (user, rest) = take_user(to).map_err(&wrong)?;
                let address = KafkaAddress::parse(rest).map_err(|why| wrong(&why))?;
                if compression == Some(Compression::Gzip) {
                    return Err(wrong("messages of Kafka are compressed with lz4 or zstd"));
                }
                (DestinationAddress::Kafka(address), user)
            }
            _ => {
                let (user, host) = take_user(to).map_err(&wrong)?;
                if host.is_empty() || host.starts_with(['/', ':', '?']) {
                    return Err(wrong("the host is missing"));
                }
                (DestinationAddress::Http(format!("{scheme}{host}")), user)
            }
        };
        if compression.is_some() && matches!(place, DestinationAddress::File(_)) {
            return Err(wrong(
                "compress= is for servers: a file is compressed if its name ends in .gz, .zst or .lz4",
            ));
        }
        if let (DestinationAddress::File(_), Some(encoding)) =
            (&place, given.filter(|encoding| !encoding.is_joinable()))
        {
            let name = encoding.name();
            return Err(wrong(&format!(
                "consecutive blocks of {name} are not a file: send them to a server, or write parquet:DIR"
            )));
        }
        let usual = if matches!(place, DestinationAddress::ClickHouse(_)) {
            Encoding::Native
        } else {
            Encoding::JsonLines
        };
        Ok(Destination {
            place,
            encoding: given.unwrap_or(usual),
            compression,
            user,
            schema: Schema::default(),
        })
    }

    /// The destination of chunks of packets.
    ///
    /// # Errors
    /// [`Error::Destination`] if it takes flows alone, or in a form of flows.
    pub fn of_packets(text: &str) -> Result<Destination, Error> {
        let wrong = |why: &str| Error::Destination { text: without_password(text), why: why.to_owned() };
        let (_, settings) = take_settings(text)?;
        let to = Destination::parse(text)?;
        match to.place {
            DestinationAddress::ClickHouse(_) => Err(wrong("its tables have flows: probe --export")),
            DestinationAddress::Kafka(KafkaAddress { key: MessageKey::Flow, .. }) => {
                Err(wrong("a chunk has packets of many flows: key=sensor or key=none"))
            }
            _ if settings.encoding.is_some() => {
                Err(wrong("packets are sections of pcapng: leave format= out"))
            }
            _ => Ok(Destination { encoding: Encoding::Pcapng, ..to }),
        }
    }

    /// The form of its blocks.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether the flows of a block are those of one key group.
    pub fn is_keyed_by_flow(&self) -> bool {
        matches!(&self.place, DestinationAddress::Kafka(address) if address.key == MessageKey::Flow)
    }

    /// Whether the receiver is of before ClickHouse 20.6, which lacks types that blocks have else.
    pub fn is_old(&self) -> bool {
        matches!(&self.place, DestinationAddress::ClickHouse(address) if address.is_old)
    }

    /// Sets the columns of blocks, which a table is made of.
    pub fn set_schema(&mut self, schema: Schema) {
        self.schema = schema;
    }

    /// The file that is written, if it is one; `-` is standard output.
    pub fn file(&self) -> Option<&Path> {
        match &self.place {
            DestinationAddress::File(path) => Some(path),
            DestinationAddress::Http(_)
            | DestinationAddress::ClickHouse(_)
            | DestinationAddress::Kafka(_) => None,
        }
    }

    /// Whether blocks go over the network.
    pub fn is_remote(&self) -> bool {
        !matches!(self.place, DestinationAddress::File(_))
    }

    /// Files that [`open`](Self::open) reads: properties of a client of Kafka, and certificates and keys that they name.
    pub fn files_read(&self) -> Vec<PathBuf> {
        #[cfg(feature = "kafka")]
        if let DestinationAddress::Kafka(KafkaAddress { properties: Some(file), .. }) = &self.place {
            return crate::kafka_properties::files(file);
        }
        Vec::new()
    }

    /// The most bytes of a block that the receiver takes.
    pub fn block_max(&self) -> usize {
        match &self.place {
            DestinationAddress::Kafka(_) => BLOCK_MAX,
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
            DestinationAddress::File(path) => Ok(Box::new(Threaded::start(FileTarget::create(path)?)?)),
            DestinationAddress::Http(url) => self.open_http(url, secret),
            DestinationAddress::ClickHouse(address) => self.open_clickhouse(address, secret),
            DestinationAddress::Kafka(address) => self.open_kafka(address, secret),
        }
    }

    #[cfg(feature = "kafka")]
    fn open_kafka(&self, address: &KafkaAddress, secret: Option<Secret>) -> Result<Box<dyn Carrier>, Error> {
        let (user, secret) = (self.user.as_deref(), secret.as_ref());
        Ok(Box::new(crate::kafka::KafkaCarrier::open(address, self.compression, user, secret)?))
    }

    #[cfg(not(feature = "kafka"))]
    fn open_kafka(&self, _: &KafkaAddress, _: Option<Secret>) -> Result<Box<dyn Carrier>, Error> {
        Err(Error::NoKafka)
    }

    #[cfg(feature = "http")]
    fn open_clickhouse(
        &self,
        address: &TableAddress,
        secret: Option<Secret>,
    ) -> Result<Box<dyn Carrier>, Error> {
        let (name, user, schema) = (self.to_string(), self.user.clone(), self.schema.clone());
        let mut target =
            crate::clickhouse::ClickHouseTarget::new(address.clone(), name, user, secret, schema);
        target.set_compression(self.compression);
        target.check()?;
        Ok(Box::new(Threaded::start(target)?))
    }

    #[cfg(not(feature = "http"))]
    fn open_clickhouse(&self, _: &TableAddress, _: Option<Secret>) -> Result<Box<dyn Carrier>, Error> {
        Err(Error::NoHttp)
    }

    #[cfg(feature = "http")]
    fn open_http(&self, url: &str, secret: Option<Secret>) -> Result<Box<dyn Carrier>, Error> {
        let target = crate::http::HttpTarget::new(url, self.compression, self.user.as_deref(), secret);
        Ok(Box::new(Threaded::start(target)?))
    }

    #[cfg(not(feature = "http"))]
    fn open_http(&self, _: &str, _: Option<Secret>) -> Result<Box<dyn Carrier>, Error> {
        Err(Error::NoHttp)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            DestinationAddress::File(path) if path == Path::new("-") => f.write_str("batch+stdout:"),
            DestinationAddress::File(path) => write!(f, "batch+file:{}", path.display()),
            DestinationAddress::Http(url) => f.write_str(url),
            DestinationAddress::ClickHouse(address) => {
                let host =
                    |endpoint: &String| endpoint.split_once("//").map_or("", |(_, host)| host).to_owned();
                let hosts: Vec<String> = address.endpoints.iter().map(host).collect();
                write!(f, "clickhouse://{}/{}", hosts.join("+"), address.table)
            }
            DestinationAddress::Kafka(address) => write!(f, "{address}"),
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
    fn destinations_are_read() {
        let parse = |text: &str| Destination::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
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
            let error = Destination::parse(text).expect_err(text).to_string();
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
