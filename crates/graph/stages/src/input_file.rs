//! Files that stages read as a whole when a graph begins: rules, patterns, programs, keys.

use std::path::Path;

use tapline_sys::disk;

/// The most bytes of a file of rules: 16 million exact rules.
pub(super) const RULES_MAX: u64 = 1 << 30;
/// The most bytes of a file of signatures, or of patterns.
pub(super) const PATTERNS_MAX: u64 = 256 << 20;
/// The most bytes of a program.
pub(super) const PROGRAM_MAX: u64 = 16 << 20;
/// The most bytes of a file with a key.
pub(super) const KEY_MAX: u64 = 4096;
/// The most bytes of a text that a person writes: a graph, a program, a filter.
pub const TEXT_MAX: u64 = 1 << 20;

/// Reads a file, pipe or device of at most `bytes_max` bytes.
///
/// # Errors
/// The file cannot be read, is a pipe without a writer, or is longer: devices such as `/dev/zero` have no end.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let bytes = disk::read_at_most(path, bytes_max)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    match bytes.len() as u64 > bytes_max {
        true => Err(format!("{} has more than {bytes_max} bytes, the most of such a file", path.display())),
        false => Ok(bytes),
    }
}

/// Reads a file as text.
///
/// # Errors
/// Those of [`read`], and bytes that are not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, String> {
    String::from_utf8(read(path, bytes_max)?)
        .map_err(|error| format!("{} is not UTF-8: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_into_which_nobody_writes_is_refused() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("pipe");
        disk::make_pipe(&path).expect("there is room");
        let error = read(&path, 1000).expect_err("nobody writes");
        assert!(error.contains("into which nobody writes"), "{error}");
    }

    #[test]
    fn endless_files_are_refused() {
        let error = read(Path::new("/dev/zero"), 1000).expect_err("it has no end");
        assert!(error.contains("more than 1000 bytes"), "{error}");
        assert_eq!(read(Path::new("/dev/null"), 0), Ok(Vec::new()));
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("x");
        std::fs::write(&path, b"a\xff").expect("there is room");
        assert_eq!(read(&path, 2), Ok(b"a\xff".to_vec()));
        assert!(read(&path, 1).is_err());
        assert!(read_text(&path, 2).expect_err("no text").contains("not UTF-8"));
    }
}
