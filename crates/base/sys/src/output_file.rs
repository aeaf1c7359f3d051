//! Files for results, and the differences for root: their mode, and that links are not followed.
//!
//! ```text
//! user   as open(2) does: 0666 less the umask, links followed
//! root   0640 less the umask; a link in the last component is an error, since its target is the choice of any user who may write to the folder; so is a regular file of another user, who would read what is written to it, and one of several names (hard links), of which another user may have made one
//! ```
//!
//! `/dev/stdout`, `/dev/fd/N` and others below `/dev` and `/proc/self/fd` are links that the system made: they are
//! followed.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::{privilege, sandbox, waiting};

/// Whether root follows links: a decision of the command line, made once.
static FOLLOWS_LINKS: AtomicBool = AtomicBool::new(false);

/// The user that this process becomes once all is open: its files may be written to before, too.
static ALLOWED_OWNER: AtomicU32 = AtomicU32::new(0);

/// Lets root write to files of a user: those of the user that root becomes.
pub fn allow_owner(uid: u32) {
    ALLOWED_OWNER.store(uid, Ordering::Relaxed);
}

/// Lets this process follow links, also as root.
pub fn follow_links() {
    FOLLOWS_LINKS.store(true, Ordering::Relaxed);
}

/// Whether links are followed in this process, also by root.
pub fn follows_links() -> bool {
    FOLLOWS_LINKS.load(Ordering::Relaxed)
}

/// The mode of files that this process makes, before its umask is taken off.
pub fn mode() -> u32 {
    if privilege::is_root() { 0o640 } else { 0o666 }
}

/// Makes a file, or empties the one that is there, for writing.
///
/// # Errors
/// As [`open`].
pub fn create(path: &Path) -> io::Result<File> {
    let file = open(path, OpenOptions::new().write(true).create(true).truncate(false))?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// As [`create`], but a regular file is locked (flock(2)) before it is emptied, as long as the descriptor is open. File
/// systems without locks do without.
///
/// # Errors
/// As [`open`]; that another program holds the lock.
pub fn create_locked(path: &Path) -> io::Result<File> {
    let file = open(path, OpenOptions::new().write(true).create(true).truncate(false))?;
    if file.metadata()?.is_file() {
        if !lock(&file) {
            return Err(io::Error::other("another program writes to it; name another file"));
        }
        file.set_len(0)?;
    }
    Ok(file)
}

/// Attempts to lock a file, [`LOCK_WAIT`] apart.
const LOCK_ATTEMPTS: u32 = 20;

/// Time between two attempts to lock a file.
const LOCK_WAIT: Duration = Duration::from_millis(5);

/// Locks a file as long as its descriptor is open; `false` if another program holds the lock. A child that was just
/// forked holds the locks of its parent until it runs its program, so a lock is asked for several times. File systems
/// without locks do without.
pub fn lock(file: &File) -> bool {
    for attempt in 0..LOCK_ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(LOCK_WAIT);
        }
        if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return true;
        }
    }
    false
}

/// Makes or opens a lock file, for its user alone (mode 0600), and takes the lock as [`create_locked`] does. `None`
/// if another program holds it.
///
/// # Errors
/// The error of open(2); that the file is a link or not a regular one.
pub fn lock_at(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not a regular file"));
    }
    if privilege::is_root() {
        check_owner(&file.metadata()?)?;
    }
    Ok(lock(&file).then_some(file))
}

/// Refuses a pipe that another user may have planted, as the kernel does with `fs.protected_fifos` (proc_sys_fs(5)):
/// opening it waits for a reader, for ever if there is none. The folder is sticky and writable for all; the pipe
/// belongs neither to us, nor to our caller, nor to the folder's owner.
///
/// # Errors
/// `AlreadyExists` for such a pipe.
pub fn check_pipe(path: &Path) -> io::Result<()> {
    let Ok(about) = fs::symlink_metadata(path) else { return Ok(()) };
    let Some(Ok(folder)) = sandbox::folder_of(path).map(fs::metadata) else { return Ok(()) };
    let is_shared = folder.mode() & (libc::S_ISVTX | libc::S_IWOTH) == libc::S_ISVTX | libc::S_IWOTH;
    let caller = privilege::Identity::of_caller().map(|caller| caller.uid);
    let is_known = [Some(privilege::user()), Some(folder.uid()), caller].contains(&Some(about.uid()));
    if about.file_type().is_fifo() && is_shared && !is_known {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it is a pipe of another user in a shared folder",
        ));
    }
    Ok(())
}

/// Renames a file, replacing a file of the new name.
///
/// # Errors
/// The error of rename(2); for root also that the file which would be replaced is another user's, as for [`open`].
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    check_replaced(to)?;
    fs::rename(from, to)
}

/// Refuses, for root, a path with the regular file of another user.
///
/// # Errors
/// As for [`open`].
pub fn check_replaced(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if privilege::is_root() => check_owner(&about),
        _ => Ok(()),
    }
}

/// Opens a file with options that may make it. They must not empty it: whose it is is only known once it is open.
///
/// # Errors
/// The error of open(2) or [`check_pipe`]; for root also that the path is a link, or the regular file of another user:
/// not of root, the caller of sudo, or the user of [`allow_owner`]; or that the file has several names.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    check_pipe(path)?;
    options.mode(mode());
    let refuses_links =
        privilege::is_root() && !FOLLOWS_LINKS.load(Ordering::Relaxed) && !is_made_by_system(path);
    if !refuses_links {
        return waiting::open(path, || options.open(path));
    }
    let opened = waiting::open(path, || options.custom_flags(libc::O_NOFOLLOW).open(path));
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it is a link, and root follows none: name the file itself, or use --follow-links",
        ),
        _ => error,
    })?;
    let about = file.metadata()?;
    check_owner(&about)?;
    // Where `fs.protected_hardlinks` is off, any user gives a file of root's another name.
    if about.is_file() && about.nlink() > 1 {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file has several names (hard links), and another user may have made this one: remove it, or use --follow-links",
        ));
    }
    Ok(file)
}

/// Refuses a regular file of another user.
fn check_owner(about: &Metadata) -> io::Result<()> {
    let caller = privilege::Identity::of_caller().map(|caller| caller.uid);
    let allowed = Some(ALLOWED_OWNER.load(Ordering::Relaxed));
    if !about.is_file() || [Some(0), caller, allowed].contains(&Some(about.uid())) {
        return Ok(());
    }
    let name = privilege::Identity::of_uid(about.uid()).map(|owner| owner.name);
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!(
            "it belongs to the user {}, who could read the output of root: remove it, or name another file",
            name.unwrap_or_else(|| about.uid().to_string())
        ),
    ))
}

/// Whether a path is below `/dev` or `/proc`, where links are the system's and devices and descriptors are opened,
/// not made.
pub fn is_made_by_system(path: &Path) -> bool {
    let folder = sandbox::folder_of(path).and_then(|folder| fs::canonicalize(folder).ok());
    folder.is_some_and(|folder| folder == Path::new("/dev") || folder.starts_with("/proc"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn root_follows_no_link_and_sets_the_group() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, target] = ["file", "link", "target"].map(|name| folder.path().join(name));
        fs::write(&target, "content").unwrap();
        symlink(&target, &link).unwrap();
        symlink(folder.path().join("none"), folder.path().join("hanging")).unwrap();
        create(&file).unwrap();
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        if privilege::is_root() {
            assert_eq!(mode & !0o640, 0, "{mode:o}");
            assert!(create(&link).unwrap_err().to_string().contains("--follow-links"));
            assert!(create(&folder.path().join("hanging")).is_err() && !folder.path().join("none").exists());
            assert_eq!(fs::read(&target).unwrap(), b"content");
        } else {
            create(&link).unwrap();
            assert_eq!(fs::read(&target).unwrap(), b"");
        }
    }

    #[test]
    fn root_writes_to_no_file_of_another_user() {
        if !privilege::is_root() {
            return eprintln!("skipped: root_writes_to_no_file_of_another_user: not root");
        }
        let folder = tempfile::tempdir().unwrap();
        let [own, other, part] = ["own", "other", "part"].map(|name| folder.path().join(name));
        fs::write(&own, "old").unwrap();
        fs::write(&other, "kept").unwrap();
        fs::write(&part, "new").unwrap();
        std::os::unix::fs::chown(&other, Some(1234), None).unwrap();
        create(&own).unwrap();
        assert_eq!(fs::read(&own).unwrap(), b"");
        let append = |path: &Path| open(path, OpenOptions::new().append(true));
        let refused = [create(&other), create_locked(&other), append(&other)].map(|opened| opened.map(drop));
        for refused in refused.into_iter().chain([rename(&part, &other)]) {
            assert!(refused.unwrap_err().to_string().contains("belongs to the user 1234"));
        }
        assert_eq!(
            (fs::read(&other).unwrap(), fs::metadata(&other).unwrap().uid()),
            (b"kept".to_vec(), 1234)
        );
        rename(&part, &own).unwrap();
    }

    #[test]
    fn root_writes_to_no_file_of_several_names() {
        if !privilege::is_root() {
            return eprintln!("skipped: root_writes_to_no_file_of_several_names: not root");
        }
        let folder = tempfile::tempdir().unwrap();
        let [secret, name] = ["secret", "name"].map(|name| folder.path().join(name));
        fs::write(&secret, "kept").unwrap();
        fs::hard_link(&secret, &name).unwrap();
        let append = |path: &Path| open(path, OpenOptions::new().append(true));
        for refused in [create(&name), create_locked(&name), append(&name)] {
            assert!(refused.unwrap_err().to_string().contains("hard links"));
        }
        assert_eq!(fs::read(&secret).unwrap(), b"kept");
        fs::remove_file(&name).unwrap();
        create(&secret).unwrap();
    }

    #[test]
    fn a_lock_has_one_holder_and_is_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["lock", "link"].map(|name| folder.path().join(name));
        let held = lock_at(&path).unwrap();
        assert!(held.is_some() && lock_at(&path).unwrap().is_none());
        drop(held);
        assert!(lock_at(&path).unwrap().is_some());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0);
        symlink(&path, &link).unwrap();
        assert!(lock_at(&link).is_err() && lock_at(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn planted_pipes_are_not_waited_for() {
        if !privilege::is_root() {
            return eprintln!("skipped: planted_pipes_are_not_waited_for: not root");
        }
        // Folder's mode, pipe's owner, whether the pipe is refused.
        for (mode, owner, is_refused) in
            [(0o1777, 1234, true), (0o1777, 0, false), (0o755, 1234, false), (0o1755, 1234, false)]
        {
            let folder = tempfile::tempdir().unwrap();
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            let pipe = folder.path().join("pipe");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            std::os::unix::fs::chown(&pipe, Some(owner), None).unwrap();
            assert_eq!(check_pipe(&pipe).is_err(), is_refused, "{mode:o} {owner}");
            if is_refused {
                assert!(create_locked(&pipe).unwrap_err().to_string().contains("another user"));
            }
        }
    }

    #[test]
    fn descriptors_have_names_that_are_links() {
        let file = tempfile::tempfile().unwrap();
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        create(Path::new(&path)).unwrap().write_all(b"x").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1);
    }
}
