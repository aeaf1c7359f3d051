//! The text as a file, for node_exporter's collector of text files.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tapline_sys::output_file;

use crate::error::Error;
use crate::exposition::{Exposition, Format};

/// Replaces the file by the samples in Prometheus' format. Readers see the old text or the new one, never a part.
///
/// # Errors
/// [`Error::File`].
pub fn write_file(path: &Path, exposition: &Exposition) -> Result<(), Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // node_exporter reads names that end in .prom.
    let mut file =
        tempfile::Builder::new().prefix(".tapline").suffix(".tmp").tempfile_in(folder).map_err(failed)?;
    file.write_all(exposition.text(Format::Prometheus).as_bytes()).map_err(failed)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed)?;
    output_file::check_replaced(path).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tapline.prom");
        fs::write(&path, "old").expect("a file");
        let mut exposition = Exposition::new();
        exposition.count("tapline_daemon_up", &[], 1);
        write_file(&path, &exposition).expect("a new file");
        let text = fs::read_to_string(&path).expect("text");
        assert!(text.ends_with("tapline_daemon_up 1\n"), "{text}");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        assert!(write_file(&folder.path().join("none/x.prom"), &exposition).is_err());
    }
}
