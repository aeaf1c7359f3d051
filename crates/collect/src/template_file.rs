//! Templates over restarts: a file of lines, each a template, of which the last with the same source and id counts.
//!
//! ```text
//! tapline-templates 1
//! 192.0.2.1 ipfix 1 256 0 8:4 12:4 1:8 29305/1:8        exporter, protocol, domain, id, scopes, enterprise/number:octets
//! 192.0.2.1 v9 0 257 1 2:4 34:4                         of a variable length: 65535
//! ```
//!
//! Lines are only added, so a crash leaves at most half a line at the end, which is cut off. `docs/format/templates.md` has
//! the whole of it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tapline_sys::output_file;

use crate::template::{FIELDS_MAX, Form, LEAST_ID, RawField, Template};
use crate::{Error, Protocol};

const HEAD: &str = "tapline-templates 1";
/// The file takes no more than this, in bytes: an exporter whose templates never stay the same cannot fill a disk.
const LEN_MAX: u64 = 16 << 20;

/// A file that keeps templates over restarts.
#[derive(Debug)]
pub struct TemplateFile {
    path: PathBuf,
    file: File,
    len: u64,
    /// Templates that were not kept: the file is full, or could not be written.
    refused: u64,
    line: String,
    kept: Vec<Kept>,
}

/// A template as it is kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) exporter: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) domain: u32,
    pub(crate) id: u16,
    pub(crate) template: Template,
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
        let mut opened = TemplateFile {
            path: path.to_owned(),
            file,
            len: 0,
            refused: 0,
            line: String::new(),
            kept: Vec::new(),
        };
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

    /// The templates that the file had when it was opened, in their order.
    pub(crate) fn take_kept(&mut self) -> Vec<Kept> {
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

    /// Keeps a template.
    pub(crate) fn keep(
        &mut self,
        exporter: IpAddr,
        protocol: Protocol,
        domain: u32,
        id: u16,
        template: &Template,
    ) {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        line += &format!("{exporter} {} {domain} {id} {}", protocol.name(), template.scopes);
        for RawField { enterprise, id, len } in &template.raw {
            line += &match enterprise {
                0 => format!(" {id}:{len}"),
                enterprise => format!(" {enterprise}/{id}:{len}"),
            };
        }
        if self.len + line.len() as u64 >= LEN_MAX || self.add_line(&line).is_err() {
            self.refused += 1;
        }
        self.line = line;
    }

    fn add_line(&mut self, line: &str) -> io::Result<()> {
        let text = format!("{line}\n");
        self.file.write_all(text.as_bytes())?;
        self.len += text.len() as u64;
        Ok(())
    }
}

/// A line; `None` for one that is damaged, which is passed over.
fn parse(line: &str) -> Option<Kept> {
    let mut words = line.split(' ');
    let exporter = words.next()?.parse().ok()?;
    let (protocol, form) = match words.next()? {
        "v9" => (Protocol::NetFlow9, Form::V9),
        "ipfix" => (Protocol::Ipfix, Form::Ipfix),
        _ => return None,
    };
    let domain = words.next()?.parse().ok()?;
    let id = words.next()?.parse().ok().filter(|id| *id >= LEAST_ID)?;
    let scopes = words.next()?.parse().ok()?;
    let fields =
        words.map(field).collect::<Option<Vec<RawField>>>().filter(|fields| fields.len() <= FIELDS_MAX)?;
    let template = Template::new(fields.into(), scopes, form)?;
    Some(Kept { exporter, protocol, domain, id, template })
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
        let kept = TemplateFile::open(path).unwrap().take_kept();
        kept.into_iter().map(|kept| (kept.id, kept.template)).collect()
    }

    #[test]
    fn templates_come_back_and_half_a_line_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("templates");
        let raw = |enterprise, id, len| RawField { enterprise, id, len };
        let fields = vec![raw(0, 8, 4), raw(29305, 1, 8), raw(0, 96, u16::MAX)];
        let template = Template::new(fields.into(), 1, Form::Ipfix).unwrap();
        let exporter = "2001:db8::1".parse().unwrap();
        TemplateFile::open(&path).unwrap().keep(exporter, Protocol::Ipfix, 7, 300, &template);
        assert_eq!(read(&path), [(300, template.clone())]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "tapline-templates 1\n2001:db8::1 ipfix 7 300 1 8:4 29305/1:8 96:65535\n");
        // Cut anywhere, the file is read, and can be added to.
        for len in HEAD.len() + 1..text.len() {
            std::fs::write(&path, &text[..len]).unwrap();
            assert!(read(&path).is_empty());
            TemplateFile::open(&path).unwrap().keep(exporter, Protocol::Ipfix, 7, 301, &template);
            let ids: Vec<u16> = read(&path).iter().map(|(id, _)| *id).collect();
            assert_eq!(ids, [301], "{len}");
        }
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
