//! `--secrets`: files of keys, whose lines go into the capture file, so that its packets can be decrypted.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tapline_file::{BlockQueue, CopiedBlock, RawBlock, SecretsKind};
use tapline_sys::disk;

/// The most bytes of a file that are read at the start, and of later additions.
const SECRETS_MAX: u64 = 16 << 20;

/// Files of keys that may grow while packets are captured.
pub(super) struct Secrets {
    files: Vec<SecretsFile>,
    queue: BlockQueue,
}

struct SecretsFile {
    file: File,
    kind: SecretsKind,
    /// Bytes that were read, up to the end of the last whole line.
    read: u64,
}

impl Secrets {
    /// Reads the present contents of the files into blocks of `queue`.
    pub(super) fn open(paths: &[PathBuf], queue: &BlockQueue) -> Result<Secrets> {
        let files = paths.iter().map(|path| open(path, queue)).collect::<Result<_>>()?;
        Ok(Secrets { files, queue: queue.clone() })
    }

    /// Adds the lines that were written since. A file that cannot be read any more adds none.
    pub(super) fn follow(&mut self) {
        for file in &mut self.files {
            let Ok(text) = file.read_on() else { continue };
            if !text.is_empty() {
                self.queue.push(CopiedBlock::Other(RawBlock::secrets(file.kind, &text)));
            }
        }
    }
}

fn open(path: &Path, queue: &BlockQueue) -> Result<SecretsFile> {
    let name = path.display();
    let failed = || format!("cannot read the secrets {name}");
    let file = disk::open_at_once(path, OpenOptions::new().read(true)).with_context(failed)?;
    let text = disk::read_file_at_most(&file, SECRETS_MAX).with_context(failed)?;
    let mut secrets = SecretsFile { file, kind: SecretsKind::Tls, read: 0 };
    if text.len() as u64 > SECRETS_MAX {
        bail!("the secrets {name} have more than 16 MiB: keep the lines of this capture");
    }
    // A program that has not begun yet has written no line.
    if text.is_empty() {
        return Ok(secrets);
    }
    secrets.read = text.len() as u64;
    secrets.kind = SecretsKind::of(&String::from_utf8_lossy(&text)).with_context(|| {
        format!("{name} has no secrets that a capture can hold: lines of SSLKEYLOGFILE, or keys of WireGuard")
    })?;
    queue.push(CopiedBlock::Other(RawBlock::secrets(secrets.kind, &text)));
    Ok(secrets)
}

impl SecretsFile {
    /// The whole lines that were added.
    fn read_on(&mut self) -> std::io::Result<Vec<u8>> {
        let mut text = Vec::new();
        if self.file.metadata()?.len() <= self.read {
            return Ok(text);
        }
        self.file.seek(SeekFrom::Start(self.read))?;
        (&self.file).take(SECRETS_MAX).read_to_end(&mut text)?;
        let lines = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        text.truncate(lines);
        self.read += lines as u64;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_that_are_added_come_whole_and_once() {
        let mut file = tempfile::NamedTempFile::new().expect("there is room");
        let queue = BlockQueue::default();
        let mut secrets = Secrets::open(&[file.path().to_owned()], &queue).expect("an empty file may grow");
        file.write_all(b"CLIENT_RANDOM 00 01\nCLIENT_RA").expect("there is room");
        assert_eq!(secrets.files[0].read_on().expect("it is there"), b"CLIENT_RANDOM 00 01\n");
        assert_eq!(secrets.files[0].read_on().expect("it is there"), b"");
        file.write_all(b"NDOM 02 03\n").expect("there is room");
        assert_eq!(secrets.files[0].read_on().expect("it is there"), b"CLIENT_RANDOM 02 03\n");
        secrets.follow();
        let other = tempfile::NamedTempFile::new().expect("there is room");
        std::fs::write(other.path(), "-----BEGIN PRIVATE KEY-----\n").expect("there is room");
        let refused =
            Secrets::open(&[other.path().to_owned()], &queue).err().expect("it is a key of a server");
        assert!(refused.to_string().contains("SSLKEYLOGFILE"), "{refused}");
    }
}
