//! Files that this process has open, as `/proc/self` tells of them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether this process reads the file of this name, under whichever name it was opened: who then empties it to write into it loses what is in it. Of what is no
/// regular file, and where there is no `/proc`, no.
pub fn is_read(path: &Path) -> bool {
    let Some(file) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else { return false };
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else { return false };
    descriptors.flatten().any(|descriptor| {
        // It leads to the file itself, also if that has another name by now, or none.
        let is_it = fs::metadata(descriptor.path())
            .is_ok_and(|other| (other.dev(), other.ino()) == (file.dev(), file.ino()));
        is_it && is_read_only(&descriptor.file_name().to_string_lossy())
    })
}

/// Whether a descriptor was opened for reading alone (proc(5), fdinfo: `flags` are octal, and O_ACCMODE is 3).
fn is_read_only(descriptor: &str) -> bool {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & 3 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};

    #[test]
    fn what_is_read_is_known_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other, link] = ["a", "b", "c"].map(|name| folder.path().join(name));
        fs::write(&path, "packets").unwrap();
        fs::hard_link(&path, &other).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let names = [&path, &other, &link];
        assert!(names.iter().all(|name| !is_read(name)));
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(!is_read(&path), "who writes to it has emptied it");
        let reader = File::open(&other).unwrap();
        assert!(names.iter().all(|name| is_read(name)));
        drop((reader, writer));
        assert!(!is_read(&path) && !is_read(&folder.path().join("none")));
        let _null = File::open("/dev/null").unwrap();
        assert!(!is_read(Path::new("/dev/null")));
    }
}
