//! The files, in the order in which later ones win.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tapline_sys::{disk, privilege};

use crate::error::Error;

/// The variable that names a folder instead of all others.
const FOLDER_VARIABLE: &str = "TAPLINE_CONFIG_DIR";

/// Files that may be there, each with its folder of drop-ins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Files of the machine and of the user, the weakest first.
    files: Vec<PathBuf>,
    /// The place that belongs to the user.
    user: Option<PathBuf>,
}

impl Places {
    /// The usual ones: `/usr/lib/tapline/tapline.toml`, `/etc/tapline/tapline.toml`, and the user's
    /// `$XDG_CONFIG_HOME/tapline/config.toml`; or `tapline.toml` in the folder that `TAPLINE_CONFIG_DIR` names.
    pub fn usual() -> Places {
        let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        Places::of(named(FOLDER_VARIABLE), named("XDG_CONFIG_HOME"), named("HOME"))
    }

    fn of(folder: Option<OsString>, config_home: Option<OsString>, home: Option<OsString>) -> Places {
        if let Some(folder) = folder {
            return Places { files: vec![Path::new(&folder).join("tapline.toml")], user: None };
        }
        let config_home = config_home.map(PathBuf::from).or_else(|| Some(Path::new(&home?).join(".config")));
        let user = config_home.map(|folder| folder.join("tapline/config.toml"));
        let mut files: Vec<PathBuf> =
            ["/usr/lib/tapline/tapline.toml", "/etc/tapline/tapline.toml"].map(PathBuf::from).to_vec();
        files.extend(user.clone());
        Places { files, user }
    }

    /// One file alone.
    pub fn only(path: &Path) -> Places {
        Places { files: vec![path.to_owned()], user: None }
    }

    /// The files that are there, opened, each before its drop-ins `NAME.d/*.toml`, which follow by name. A file of the
    /// user that belongs to another is left out: it is the caller's of sudo(8), not root's.
    ///
    /// # Errors
    /// [`Error::Untrusted`] for a file that others may write, [`Error::File`] for a folder that cannot be read.
    pub(crate) fn present(&self) -> Result<Vec<(PathBuf, File)>, Error> {
        let mut present = Vec::new();
        for file in &self.files {
            let is_users = self.user.as_ref() == Some(file);
            // After sudo(8) or a change of the user, HOME may be another one's.
            let is_left_out = |error: &Error| is_users && error.is_denied();
            let drop_ins = drop_ins(file)
                .or_else(|error| if is_left_out(&error) { Ok(Vec::new()) } else { Err(error) })?;
            for path in [vec![file.clone()], drop_ins].concat() {
                match open_trusted(&path, is_users) {
                    Ok(opened) => present.extend(opened.map(|file| (path, file))),
                    Err(error) if is_left_out(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(present)
    }
}

/// Opens a file that may be believed; `None` if there is none, or one of the user that belongs to another.
fn open_trusted(path: &Path, is_users: bool) -> Result<Option<File>, Error> {
    let is_anothers = |about: &fs::Metadata| is_users && about.uid() != privilege::user();
    // Looked at before it is opened, which a pipe or device of another user would notice.
    match about(path)? {
        Some(about) if !is_anothers(&about) => ensure_trusted(path, &about)?,
        _ => return Ok(None),
    }
    let failed = |source| Error::File { path: path.to_owned(), source };
    let file = disk::open_at_once(path, fs::OpenOptions::new().read(true)).map_err(failed)?;
    // And once more: in a folder of another user the name may mean another file by now.
    let about = file.metadata().map_err(failed)?;
    if is_anothers(&about) {
        return Ok(None);
    }
    ensure_trusted(path, &about)?;
    Ok(Some(file))
}

/// Metadata of a path; `None` if it does not exist.
fn about(path: &Path) -> Result<Option<fs::Metadata>, Error> {
    match fs::metadata(path) {
        Ok(about) => Ok(Some(about)),
        Err(source) if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(source) => Err(Error::File { path: path.to_owned(), source }),
    }
}

fn drop_ins(file: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut name = file.as_os_str().to_owned();
    name.push(".d");
    let folder = PathBuf::from(name);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(source) if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(source) => return Err(Error::File { path: folder, source }),
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.sort();
    Ok(paths)
}

/// A file has options of a program that may run as root: no other user may have written it.
fn ensure_trusted(path: &Path, about: &fs::Metadata) -> Result<(), Error> {
    let (owner, user) = (about.uid(), privilege::user());
    let untrusted = |why: String| Err(Error::Untrusted { path: path.to_owned(), why });
    if owner != 0 && owner != user {
        return untrusted(format!("it belongs to user {owner}, neither to root nor to user {user}"));
    }
    if about.mode() & 0o022 != 0 {
        return untrusted(format!("others may write it (mode {:o})", about.mode() & 0o777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::{io, thread};

    use super::*;

    #[test]
    fn later_files_follow_their_drop_ins() {
        let folder = tempfile::tempdir().expect("a folder");
        let main = folder.path().join("tapline.toml");
        let drop_in = folder.path().join("tapline.toml.d");
        fs::create_dir(&drop_in).expect("a folder");
        for path in
            [&main, &drop_in.join("20-b.toml"), &drop_in.join("10-a.toml"), &drop_in.join("notes.txt")]
        {
            fs::write(path, "").expect("a file");
        }
        let names: Vec<_> = Places::only(&main)
            .present()
            .expect("ours")
            .iter()
            .map(|(path, _)| path.file_name().expect("a name").to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["tapline.toml", "10-a.toml", "20-b.toml"]);
        assert!(Places::only(&folder.path().join("none.toml")).present().expect("none").is_empty());
    }

    #[test]
    fn a_file_that_others_may_write_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tapline.toml");
        fs::write(&path, "").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("ours");
        let error = Places::only(&path).present().expect_err("anybody's").to_string();
        assert!(error.contains("mode 666") && error.contains("tapline.toml"), "{error}");
    }

    /// A user in whose folder root looks (HOME after su(1)) changes what a name means as fast as that goes.
    #[test]
    fn a_file_that_is_exchanged_meanwhile_is_not_read() {
        if !privilege::is_root() {
            eprintln!("a_file_that_is_exchanged_meanwhile_is_not_read: skipped: needs root");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let of = |name: &str| folder.path().join(name);
        let (main, good, bad) = (of("tapline.toml"), of("good"), of("bad"));
        fs::write(&good, "good").expect("a file");
        fs::write(&bad, "bad").expect("a file");
        std::os::unix::fs::chown(&bad, Some(65_534), None).expect("root may");
        let ends = AtomicBool::new(false);
        let read = thread::scope(|scope| {
            scope.spawn(|| {
                for target in [&bad, &good].into_iter().cycle() {
                    if ends.load(Relaxed) {
                        break;
                    }
                    let _ = fs::remove_file(of("next"));
                    symlink(target, of("next"))
                        .and_then(|()| fs::rename(of("next"), &main))
                        .expect("renamed");
                }
            });
            let places = Places::only(&main);
            let mut texts = Vec::new();
            while texts.len() < 2000 {
                let Ok(mut present) = places.present() else { continue };
                let text = present.pop().map(|(_, file)| io::read_to_string(file).expect("a text"));
                texts.extend(text);
            }
            ends.store(true, Relaxed);
            texts
        });
        assert!(read.iter().all(|text| text == "good"));
    }

    #[test]
    fn the_users_folder_is_that_of_xdg() {
        let places = Places::of(None, Some("/x".into()), Some("/home/a".into()));
        assert_eq!(places.user, Some("/x/tapline/config.toml".into()));
        let places = Places::of(None, None, Some("/home/a".into()));
        assert_eq!(places.user, Some("/home/a/.config/tapline/config.toml".into()));
        assert_eq!(Places::of(Some("/y".into()), None, None).files, [PathBuf::from("/y/tapline.toml")]);
    }
}
