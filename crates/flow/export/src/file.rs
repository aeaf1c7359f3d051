//! Files and standard output.

use std::io;
use std::path::Path;

use tapline_flow::export::MessageFile;

use crate::{Block, Error, Outcome, Target};

/// A file of blocks behind each other. A block that was written is the system's: it outlives the program, and not a power
/// cut.
pub struct FileTarget {
    file: MessageFile,
    name: String,
}

impl FileTarget {
    /// Makes a file, or empties the one that is there; `-` is standard output. A name such as `flows.json.zst` is
    /// compressed.
    ///
    /// # Errors
    /// [`Error::Open`] if it cannot be made, or another process writes to it.
    pub fn create(path: &Path) -> Result<FileTarget, Error> {
        let name = MessageFile::name_of(path);
        let file = MessageFile::create(path).map_err(|source| Error::Open { name: name.clone(), source })?;
        Ok(FileTarget { file, name })
    }
}

impl Target for FileTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn deliver(&mut self, block: &Block) -> Outcome {
        match self.file.add(&block.bytes) {
            Ok(()) => Outcome::Delivered,
            // A disk that is full may get room again. A part of a block was cut off, which pipes and devices cannot.
            Err(error) if self.file.is_regular() && error.kind() == io::ErrorKind::StorageFull => {
                Outcome::Again(error.to_string())
            }
            Err(error) => Outcome::Refused(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::block;

    #[test]
    fn a_file_has_the_blocks_in_their_order() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("flows.json");
        let mut file = FileTarget::create(&path).expect("it can be made");
        for (number, rows) in [&b"{}\n"[..], b"{\"a\":1}\n"].iter().enumerate() {
            assert_eq!(file.deliver(&block(number as u64, rows)), Outcome::Delivered);
        }
        assert_eq!(std::fs::read(&path).expect("it is there"), b"{}\n{\"a\":1}\n");
    }

    #[test]
    fn a_device_that_is_full_refuses() {
        let mut full = FileTarget::create(Path::new("/dev/full")).expect("it is everywhere");
        assert!(matches!(full.deliver(&block(0, b"{}\n")), Outcome::Refused(_)));
    }

    #[test]
    fn a_file_that_cannot_be_made_is_told_by_name() {
        let error = FileTarget::create(Path::new("/nowhere/flows.json")).err().expect("no such folder");
        assert!(error.to_string().starts_with("/nowhere/flows.json: "), "{error}");
    }
}
