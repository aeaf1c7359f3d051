//! Templates over restarts: a file of lines, each a template, of which the last with the same source and id counts.
//!
//! ```text
//! tapline-templates 1
//! 192.0.2.1:4711 ipfix 1 256 0 8:4 12:4 1:8 29305/1:8   exporter, protocol, domain, id, scopes, enterprise/number:octets
//! 192.0.2.1:4711 v9 0 257 1 2:4 34:4                    of a variable length: 65535
//! 192.0.2.1:4711 v9 0 sampling sampler:7 100            1 packet in 100; of: domain, exporter, interface:N, sampler:N
//! 192.0.2.1:4711 v9 0 boot 1700000000                   the exporter started at this second
//! 192.0.2.1:4711 v9 0 proven                            the source has sent messages in order for a while
//! ```
//!
//! Lines are added, so a crash leaves at most half a line at the end, which is cut off. A full file is rewritten with
//! the collector's present knowledge. `docs/format/templates.md` has the whole of it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use tapline_sys::output_file;

use crate::sampling::Scope;
use crate::sources::SourceKey;
use crate::template::{FIELDS_MAX, Form, LEAST_ID, RawField, Template};
use crate::{Error, Protocol};

const HEAD: &str = "tapline-templates 1";
/// The file takes no more than this, in bytes: an exporter whose templates never stay the same cannot fill a disk.
const LEN_MAX: u64 = 16 << 20;
/// Marks a proven source.
const PROVEN: &str = "proven";
/// Begins the time of an exporter's start.
const BOOT: &str = "boot";
/// Begins a sampling interval.
const SAMPLING: &str = "sampling";

/// A file that keeps templates over restarts.
#[derive(Debug)]
pub struct TemplateFile {
    path: PathBuf,
    file: File,
    len: u64,
    /// Templates that were not kept: the file is full, or could not be written.
    refused: u64,
    kept: Vec<(SourceKey, Entry)>,
}

/// An entry of the file about a source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    /// A template, with its id.
    Template(u16, Template),
    /// A sampling interval.
    Interval(Scope, u32),
    /// The second since 1970 at which the exporter started.
    Boot(i64),
    /// The source is proven (see `sources.rs`).
    Proven,
}

/// Whether the file kept an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    Kept,
    /// The file is full.
    Full,
}

impl Keeping {
    pub(crate) fn and(self, other: Keeping) -> Keeping {
        if self == Keeping::Full { self } else { other }
    }
}

impl TemplateFile {
    /// Opens the file, which is made if there is none, and reads its templates. Half a line at its end is cut off.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be opened or read, [`Error::Line`] if it is another kind of file.
    pub fn open(path: &Path) -> Result<TemplateFile, Error> {
        let fault = |source| Error::File { path: path.to_owned(), source };
        let file = output_file::open(path, OpenOptions::new().read(true).append(true).create(true));
        let file = file.map_err(fault)?;
        if !file.metadata().map_err(fault)?.is_file() {
            return Err(fault(io::Error::other("it is not a file: templates are read again and added to")));
        }
        let mut opened = TemplateFile { path: path.to_owned(), file, len: 0, refused: 0, kept: Vec::new() };
        opened.read()?;
        if opened.len == 0 {
            opened.add_line(HEAD).map_err(fault)?;
        }
        Ok(opened)
    }

    /// Templates that were not kept: the file is full, or could not be written.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The entries that the file had when it was opened, in their order.
    pub(crate) fn take_kept(&mut self) -> Vec<(SourceKey, Entry)> {
        std::mem::take(&mut self.kept)
    }

    fn read(&mut self) -> Result<(), Error> {
        let fault = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        let mut reader = BufReader::new((&self.file).take(LEN_MAX));
        let mut text = Vec::new();
        for number in 1.. {
            text.clear();
            let read = reader.read_until(b'\n', &mut text).map_err(fault(&self.path))?;
            if !text.ends_with(b"\n") {
                // The end of the file, or half a line of a crash.
                if read > 0 && number > 1 {
                    self.file.set_len(self.len).map_err(fault(&self.path))?;
                }
                if read > 0 && number == 1 {
                    return Err(self.not_ours());
                }
                return Ok(());
            }
            let line = std::str::from_utf8(&text).unwrap_or("").trim_end();
            if number == 1 && line != HEAD {
                return Err(self.not_ours());
            }
            self.len += read as u64;
            self.kept.extend(parse(line));
        }
        Ok(())
    }

    fn not_ours(&self) -> Error {
        let what = "is not `tapline-templates 1`, with which such a file begins";
        Error::Line { path: self.path.clone(), line: 1, what }
    }

    pub(crate) fn keep(&mut self, key: SourceKey, entry: &Entry) -> Keeping {
        let line = text_of(key, entry);
        if self.len + line.len() as u64 >= LEN_MAX {
            return Keeping::Full;
        }
        if self.add_line(&line).is_err() {
            self.refused += 1;
        }
        Keeping::Kept
    }

    /// Rewrites the file with as many of the entries as fill half of it, the first ones of all.
    pub(crate) fn rewrite(&mut self, entries: impl Iterator<Item = (SourceKey, Entry)>) {
        let mut text = format!("{HEAD}\n");
        for (key, entry) in entries {
            let line = text_of(key, &entry);
            if text.len() + line.len() >= LEN_MAX as usize / 2 {
                self.refused += 1;
                continue;
            }
            text += &line;
            text.push('\n');
        }
        self.len = 0;
        match self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes())) {
            Ok(()) => self.len = text.len() as u64,
            Err(_) => self.refused += 1,
        }
    }

    fn add_line(&mut self, line: &str) -> io::Result<()> {
        let text = format!("{line}\n");
        self.file.write_all(text.as_bytes())?;
        self.len += text.len() as u64;
        Ok(())
    }
}

/// The line of an entry.
fn text_of(key: SourceKey, entry: &Entry) -> String {
    let SourceKey { exporter, port, protocol, domain } = key;
    let exporter = match port {
        0 => exporter.to_string(),
        port => SocketAddr::new(exporter, port).to_string(),
    };
    let mut line = format!("{exporter} {} {domain} ", protocol.name());
    match entry {
        Entry::Proven => line += PROVEN,
        Entry::Boot(second) => line += &format!("{BOOT} {second}"),
        Entry::Interval(scope, interval) => {
            line += &match scope {
                Scope::Whole => format!("{SAMPLING} domain {interval}"),
                Scope::System => format!("{SAMPLING} exporter {interval}"),
                Scope::Domain(domain) => format!("{SAMPLING} domain:{domain} {interval}"),
                Scope::Template(template) => format!("{SAMPLING} template:{template} {interval}"),
                Scope::Interface(interface) => format!("{SAMPLING} interface:{interface} {interval}"),
                Scope::Sampler(sampler) => format!("{SAMPLING} sampler:{sampler} {interval}"),
            };
        }
        Entry::Template(id, template) => {
            line += &format!("{id} {}", template.scopes);
            for RawField { enterprise, id, len } in &template.raw {
                line += &match enterprise {
                    0 => format!(" {id}:{len}"),
                    enterprise => format!(" {enterprise}/{id}:{len}"),
                };
            }
        }
    }
    line
}

/// Parses a line; `None` for a damaged one, which is skipped.
fn parse(line: &str) -> Option<(SourceKey, Entry)> {
    let mut words = line.split(' ');
    let exporter = words.next()?;
    let (exporter, port) = match exporter.parse::<SocketAddr>() {
        Ok(address) => (address.ip(), address.port()),
        Err(_) => (exporter.parse::<IpAddr>().ok()?, 0),
    };
    let (protocol, form) = match words.next()? {
        "v9" => (Protocol::NetFlow9, Form::V9),
        "ipfix" => (Protocol::Ipfix, Form::Ipfix),
        _ => return None,
    };
    let domain = words.next()?.parse().ok()?;
    let key = SourceKey { exporter, port, protocol, domain };
    let kind = words.next()?;
    if kind == PROVEN {
        return Some((key, Entry::Proven));
    }
    if kind == BOOT {
        return Some((key, Entry::Boot(words.next()?.parse().ok()?)));
    }
    if kind == SAMPLING {
        let scope = scope(words.next()?)?;
        let interval = words.next()?.parse().ok().filter(|interval| *interval > 0)?;
        return Some((key, Entry::Interval(scope, interval)));
    }
    let id = kind.parse().ok().filter(|id| *id >= LEAST_ID)?;
    let scopes = words.next()?.parse().ok()?;
    let fields =
        words.map(field).collect::<Option<Vec<RawField>>>().filter(|fields| fields.len() <= FIELDS_MAX)?;
    let template = Template::new(fields.into(), scopes, form)?;
    Some((key, Entry::Template(id, template)))
}

fn scope(word: &str) -> Option<Scope> {
    match word.split_once(':') {
        Some(("domain", number)) => Some(Scope::Domain(number.parse().ok()?)),
        Some(("template", number)) => Some(Scope::Template(number.parse().ok()?)),
        Some(("interface", number)) => Some(Scope::Interface(number.parse().ok()?)),
        Some(("sampler", number)) => Some(Scope::Sampler(number.parse().ok()?)),
        None if word == "domain" => Some(Scope::Whole),
        None if word == "exporter" => Some(Scope::System),
        _ => None,
    }
}

fn field(word: &str) -> Option<RawField> {
    let (element, len) = word.split_once(':')?;
    let (enterprise, id) = element.split_once('/').unwrap_or(("0", element));
    Some(RawField { enterprise: enterprise.parse().ok()?, id: id.parse().ok()?, len: len.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Vec<(u16, Template)> {
        let kept = TemplateFile::open(path).unwrap().take_kept().into_iter();
        let template = |(_, entry)| match entry {
            Entry::Template(id, template) => Some((id, template)),
            Entry::Interval(..) | Entry::Boot(_) | Entry::Proven => None,
        };
        kept.filter_map(template).collect()
    }

    fn key(domain: u32) -> SourceKey {
        let exporter = "2001:db8::1".parse().unwrap();
        SourceKey { exporter, port: 4711, protocol: Protocol::Ipfix, domain }
    }

    #[test]
    fn templates_come_back_and_half_a_line_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("templates");
        let raw = |enterprise, id, len| RawField { enterprise, id, len };
        let fields = vec![raw(0, 8, 4), raw(29305, 1, 8), raw(0, 96, u16::MAX)];
        let template = Template::new(fields.into(), 1, Form::Ipfix).unwrap();
        let keep = |id| {
            let entry = Entry::Template(id, template.clone());
            assert_eq!(TemplateFile::open(&path).unwrap().keep(key(7), &entry), Keeping::Kept);
        };
        keep(300);
        assert_eq!(read(&path), [(300, template.clone())]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "tapline-templates 1\n[2001:db8::1]:4711 ipfix 7 300 1 8:4 29305/1:8 96:65535\n");
        // Cut anywhere, the file is read, and can be added to.
        for len in HEAD.len() + 1..text.len() {
            std::fs::write(&path, &text[..len]).unwrap();
            assert!(read(&path).is_empty());
            keep(301);
            let ids: Vec<u16> = read(&path).iter().map(|(id, _)| *id).collect();
            assert_eq!(ids, [301], "{len}");
        }
    }

    #[test]
    fn a_full_file_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("templates");
        let fields: Vec<RawField> = (0..512).map(|id| RawField { enterprise: 0, id, len: 1 }).collect();
        let template = Template::new(fields.into(), 0, Form::Ipfix).unwrap();
        let entry = Entry::Template(300, template);
        let mut file = TemplateFile::open(&path).unwrap();
        let forged = (0..).find(|domain| file.keep(key(*domain), &entry) == Keeping::Full).unwrap();
        assert!(forged > 4000);
        let scopes = [
            Scope::Whole,
            Scope::System,
            Scope::Domain(9),
            Scope::Template(256),
            Scope::Interface(3),
            Scope::Sampler(1 << 40),
        ];
        let mut entries = scopes.map(|scope| (key(0), Entry::Interval(scope, 100))).to_vec();
        entries.extend([
            (key(0), Entry::Proven),
            (key(0), Entry::Boot(1_700_000_000)),
            (key(0), entry.clone()),
        ]);
        file.rewrite(entries.iter().cloned());
        assert_eq!((file.refused(), file.keep(key(1), &entry)), (0, Keeping::Kept));
        let kept = TemplateFile::open(&path).unwrap().take_kept();
        entries.push((key(1), entry));
        assert_eq!(kept, entries);
    }

    #[test]
    fn a_pipe_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        tapline_sys::disk::make_pipe(&path).unwrap();
        let error = TemplateFile::open(&path).unwrap_err();
        assert!(format!("{error:?}").contains("it is not a file"), "{error:?}");
    }

    #[test]
    fn another_kind_of_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other");
        std::fs::write(&path, "hello\n").unwrap();
        let error = TemplateFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("give another file"), "{error}");
    }
}
