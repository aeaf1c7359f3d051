//! A file that becomes visible only once it is complete.
//!
//! ```text
//! create --> written, without a name --> publish: all on the disk, then its name
//!     \----> dropped: gone
//! ```
//!
//! On file systems without unnamed files (NFS, FAT) the draft has a name that begins with a dot and does not end in
//! `.parquet`; a crash leaves it behind there.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tapline_sys::{output_file, unnamed};

/// A file before it has its name.
pub(super) struct UnnamedFile {
    file: File,
    path: PathBuf,
    /// The draft's temporary path, on a file system without unnamed files.
    hidden: Option<PathBuf>,
}

impl UnnamedFile {
    /// Begins the file for `path`, and returns the handle for writing.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn create(path: PathBuf) -> io::Result<(UnnamedFile, File)> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let (file, hidden) = match unnamed::create(folder) {
            Ok(file) => (file, None),
            Err(error) if unnamed::is_unsupported(&error) => {
                let hidden = hidden(&path);
                (output_file::open(&hidden, File::options().write(true).create_new(true))?, Some(hidden))
            }
            Err(error) => return Err(error.source),
        };
        let draft = UnnamedFile { file, path, hidden };
        let writes = draft.file.try_clone()?;
        Ok((draft, writes))
    }

    /// The file is whole: gives it its name.
    ///
    /// # Errors
    /// If not all of it is on the disk, or the name is taken; then the file is gone.
    pub(super) fn publish(mut self) -> io::Result<()> {
        // The name is not to outlive a power cut that the content did not.
        self.file.sync_data()?;
        match &self.hidden {
            None => unnamed::name(&self.file, &self.path).map_err(|error| error.source),
            Some(hidden) => {
                fs::rename(hidden, &self.path)?;
                self.hidden = None;
                Ok(())
            }
        }
    }
}

impl Drop for UnnamedFile {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = fs::remove_file(hidden);
        }
    }
}

/// Makes a file in a folder, and forgets it.
///
/// # Errors
/// If it cannot be made.
pub(super) fn try_out(folder: &Path) -> io::Result<()> {
    UnnamedFile::create(folder.join(format!("{:016x}.parquet", super::store::random()))).map(|_| ())
}

fn hidden(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.part"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    /// As where the file system has no files without names.
    fn create_hidden(path: PathBuf) -> (UnnamedFile, File) {
        let hidden = hidden(&path);
        let file = File::create_new(&hidden).unwrap();
        let writes = file.try_clone().unwrap();
        (UnnamedFile { file, path, hidden: Some(hidden) }, writes)
    }

    #[test]
    fn a_draft_is_invisible_before_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        for (at, create) in
            [|path| UnnamedFile::create(path).unwrap(), create_hidden as fn(PathBuf) -> (UnnamedFile, File)]
                .iter()
                .enumerate()
        {
            let path = folder.path().join(format!("{at}.parquet"));
            let (draft, mut writes) = create(path.clone());
            writes.write_all(b"whole").unwrap();
            let found = names(folder.path());
            assert!(
                found
                    .iter()
                    .all(|name| name == "0.parquet" || name.starts_with('.') && name.ends_with(".part"))
            );
            draft.publish().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"whole");
            // A dropped draft leaves no file, and one whose name is taken replaces none.
            drop(create(folder.path().join("given up.parquet")));
            assert_eq!(names(folder.path()).len(), at + 1);
        }
        let (draft, _) = UnnamedFile::create(folder.path().join("0.parquet")).unwrap();
        assert!(draft.hidden.is_some() || draft.publish().is_err());
    }
}
