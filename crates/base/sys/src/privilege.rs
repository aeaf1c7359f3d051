//! Giving up rights that are no longer needed once the sockets are open.
//!
//! ```text
//! set-uid, at once:   setresgid -> setresuid -> capset(net_raw)   files opened from here on are those that the
//! caller may open
//! root or sudo:       setgroups -> setresgid -> setresuid         to the caller of sudo, or a user that was named
//! always:             capset(nothing), no_new_privs               nothing can be got back, not by exec either
//! ```
//!
//! Capabilities and no_new_privs belong to a thread and are inherited by those it makes: drop first, then make threads.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;

use crate::SyscallError;
use crate::capability::{self, Capability};
use crate::error::check;
use crate::process;

/// The most groups that the kernel keeps for a user (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

/// Room for one line of the user database; larger ones are not found.
const RECORD_LEN_MAX: usize = 1 << 20;

/// The group that means none: the kernel's default of `/proc/sys/kernel/overflowgid`.
const OVERFLOW_GID: u32 = 65_534;

/// A user to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the user; empty if it has none.
    pub name: String,
    /// Number of the user.
    pub uid: u32,
    /// First group of the user.
    pub gid: u32,
    /// All of its groups.
    pub groups: Vec<u32>,
    /// Home directory; `None` if the user has none.
    pub home: Option<PathBuf>,
}

impl Identity {
    /// The user of this name, if there is one.
    pub fn of_name(name: &str) -> Option<Identity> {
        let name = CString::new(name).ok()?;
        look_up(|record, buffer, len, found| {
            // SAFETY: see `look_up`; `name` is a C string that lives through the call.
            unsafe { libc::getpwnam_r(name.as_ptr(), record, buffer, len, found) }
        })
    }

    /// The user of this number, if there is one.
    pub fn of_uid(uid: u32) -> Option<Identity> {
        look_up(|record, buffer, len, found| {
            // SAFETY: see `look_up`.
            unsafe { libc::getpwuid_r(uid, record, buffer, len, found) }
        })
    }

    /// The unprivileged user on whose behalf this privileged process runs: the caller of sudo(8) or doas(1), or of a
    /// set-uid program. `None` if that is root itself.
    pub fn of_caller() -> Option<Identity> {
        // SAFETY: getuid(2) cannot fail and has no conditions.
        let real = unsafe { libc::getuid() };
        let named = || std::env::var("SUDO_UID").ok()?.parse().ok();
        let by_name = || Identity::of_name(&std::env::var("DOAS_USER").ok()?).map(|user| user.uid);
        let uid = if real != 0 { real } else { named().or_else(by_name)? };
        (uid != 0).then(|| Identity::of_uid(uid).unwrap_or_else(|| Identity::of_number(uid)))
    }

    /// A user that is not in the user database, as in containers: in the group of `nobody`, as its own is unknown.
    fn of_number(uid: u32) -> Identity {
        Identity { name: String::new(), uid, gid: OVERFLOW_GID, groups: vec![OVERFLOW_GID], home: None }
    }
}

/// The user that this process acts for: its effective uid.
pub fn user() -> u32 {
    // SAFETY: geteuid(2) cannot fail and has no conditions.
    unsafe { libc::geteuid() }
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: geteuid(2) cannot fail and has no conditions.
    unsafe { libc::geteuid() == 0 }
}

/// Turns a set-uid program into one with file capabilities: it becomes its caller and keeps `kept` alone. Files that
/// it opens from then on are those that the caller may open. Does nothing in any other program. Call it first of all.
///
/// # Errors
/// The error of prctl(2), setresuid(2) and capset(2). Nothing should go on after an error.
pub fn leave_set_uid(kept: &[Capability]) -> Result<(), SyscallError> {
    // SAFETY: getuid(2) and getgid(2) cannot fail and have no conditions.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    if uid == 0 || !is_root() {
        return Ok(());
    }
    keep_as(uid, gid, kept)
}

/// Becomes a user without further groups, and keeps `kept` alone of all capabilities.
///
/// # Errors
/// The error of setgroups(2), prctl(2), setresuid(2) and capset(2). Nothing should go on after an error.
pub(crate) fn become_keeping(uid: u32, gid: u32, kept: &[Capability]) -> Result<(), SyscallError> {
    // SAFETY: a list of no groups is not looked at.
    check("setgroups", unsafe { libc::setgroups(0, ptr::null()) })?;
    keep_as(uid, gid, kept)
}

fn keep_as(uid: u32, gid: u32, kept: &[Capability]) -> Result<(), SyscallError> {
    // SAFETY: prctl(2) with this option takes integers only.
    check("prctl(PR_SET_KEEPCAPS)", unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) })?;
    // SAFETY: takes integers only. The C library changes all threads of the process.
    check("setresgid", unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: as above.
    check("setresuid", unsafe { libc::setresuid(uid, uid, uid) })?;
    capability::keep_only(kept)?;
    // SAFETY: as for the first prctl.
    check("prctl(PR_SET_KEEPCAPS)", unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 0, 0, 0, 0) }).map(|_| ())
}

/// Becomes `identity`, if one is given, and gives up every capability, for good. All threads change the user; threads
/// made earlier keep what capabilities they hold as that user (none, after leaving root).
///
/// # Errors
/// `EPERM` without `CAP_SETUID` and `CAP_SETGID`, if the identity is another. Nothing should go on after an error.
pub fn drop_to(identity: Option<&Identity>) -> Result<(), SyscallError> {
    // The kernel forgets it with every change of rights.
    let parent_signal = process::parent_signal()?;
    if let Some(identity) = identity {
        become_user(identity)?;
    }
    capability::drop_all()?;
    process::set_parent_signal(parent_signal)?;
    take_no_new()?;
    verify(identity)
}

/// No program that is started from here on has more rights than this one.
pub(crate) fn take_no_new() -> Result<(), SyscallError> {
    // SAFETY: prctl(2) with this option takes integers only.
    check("prctl(PR_SET_NO_NEW_PRIVS)", unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
        .map(|_| ())
}

fn become_user(identity: &Identity) -> Result<(), SyscallError> {
    let Identity { uid, gid, ref groups, .. } = *identity;
    // SAFETY: the pointer and the length describe `groups`, which lives through the call.
    check("setgroups", unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: takes integers only. The C library changes all threads of the process.
    check("setresgid", unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: as above.
    check("setresuid", unsafe { libc::setresuid(uid, uid, uid) }).map(|_| ())
}

/// Checks the resulting rights, so that a call that did less than it reported does not pass silently.
fn verify(identity: Option<&Identity>) -> Result<(), SyscallError> {
    // SAFETY: geteuid(2) and getegid(2) cannot fail and have no conditions.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let is_other = identity.is_some_and(|identity| (uid, gid) != (identity.uid, identity.gid));
    if is_other || capability::effective()? != 0 {
        return Err(SyscallError::from_errno("privileges are still there", libc::EPERM));
    }
    Ok(())
}

/// Calls one of the reentrant look-up functions with a buffer that grows until the record fits. The function may write
/// to `record`, to `len` bytes of the buffer, and to `found`, which then is null or points to `record`.
fn look_up(
    call: impl Fn(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> i32,
) -> Option<Identity> {
    let mut buffer: Vec<libc::c_char> = vec![0; 1024];
    loop {
        // SAFETY: all-zero bytes are a valid passwd (null pointers).
        let mut record: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = ptr::null_mut();
        let error = call(&mut record, buffer.as_mut_ptr(), buffer.len(), &mut found);
        if error == libc::ERANGE && buffer.len() < RECORD_LEN_MAX {
            buffer.resize(buffer.len() * 2, 0);
            continue;
        }
        if error != 0 || found.is_null() || record.pw_name.is_null() {
            return None;
        }
        // SAFETY: the call succeeded, so `pw_name` points to a C string in `buffer`, which is still alive.
        let name = unsafe { CStr::from_ptr(record.pw_name) };
        let groups = groups_of(name, record.pw_gid);
        // SAFETY: as above, where the record has one.
        let home = (!record.pw_dir.is_null()).then(|| unsafe { CStr::from_ptr(record.pw_dir) });
        let home = home.map(|home| PathBuf::from(OsStr::from_bytes(home.to_bytes())));
        let home = home.filter(|home| home.is_absolute());
        let name = name.to_string_lossy().into_owned();
        return Some(Identity { name, uid: record.pw_uid, gid: record.pw_gid, groups, home });
    }
}

fn groups_of(name: &CStr, gid: u32) -> Vec<u32> {
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: `name` is a C string, and the kernel writes at most `count` numbers to `groups`.
        let result = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        if result >= 0 {
            groups.truncate(usize::try_from(count).unwrap_or(0));
            return groups;
        }
        if groups.len() >= GROUPS_MAX {
            return vec![gid];
        }
        groups.resize(groups.len() * 4, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let root = Identity::of_name("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(Identity::of_uid(0).unwrap(), root);
        assert_eq!(Identity::of_name("no such user"), None);
        assert_eq!(Identity::of_name("a\0b"), None);
    }

    /// Runs one of these tests again in a process of its own, for it changes the whole process. Returns whether this is
    /// that process already.
    fn is_own_process(test: &str, variables: &[(&str, &str)]) -> bool {
        const CHILD: &str = "TAPLINE_TEST_OF_PRIVILEGES";
        if std::env::var_os(CHILD).is_some() {
            return true;
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("privilege::tests::{test}")]).env(CHILD, "1");
        let child = command.envs(variables.iter().copied()).output().unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        false
    }

    fn unprivileged_user_or_skip(test: &str) -> Option<Identity> {
        let nobody = Identity::of_name("nobody").filter(|_| is_root());
        if nobody.is_none() {
            eprintln!("skipped: {test}: not root, or no user nobody");
        }
        nobody
    }

    #[test]
    fn an_unknown_caller_does_not_keep_root() {
        let test = "an_unknown_caller_does_not_keep_root";
        // A number beyond those that are given to people or to containers.
        if is_root() && is_own_process(test, &[("SUDO_UID", "4294000001")]) {
            let caller = Identity::of_caller().unwrap();
            assert_eq!(
                (caller.uid, caller.gid, caller.groups),
                (4_294_000_001, OVERFLOW_GID, vec![OVERFLOW_GID])
            );
        }
    }

    #[test]
    fn set_uid_programs_have_caller_and_kept_rights() {
        const TEST: &str = "set_uid_programs_have_caller_and_kept_rights";
        let Some(nobody) = unprivileged_user_or_skip(TEST).filter(|_| is_own_process(TEST, &[])) else {
            return;
        };
        // SAFETY: takes integers only.
        let result = unsafe {
            libc::setresgid(nobody.gid, nobody.gid, nobody.gid) | libc::setresuid(nobody.uid, 0, 0)
        };
        assert_eq!((result, is_root()), (0, true), "as the kernel starts a set-uid program");
        leave_set_uid(&[Capability::NetRaw]).unwrap();
        assert_eq!(capability::effective().unwrap(), 1 << Capability::NetRaw as u32);
        assert!(crate::PacketSocket::open().is_ok());
        assert!(std::fs::File::open("/etc/shadow").is_err());
        // SAFETY: takes an integer only.
        assert_eq!(unsafe { libc::setuid(0) }, -1);
        drop_to(None).unwrap();
        assert!(crate::PacketSocket::open().is_err());
    }

    #[test]
    fn rights_given_up_by_root_are_gone() {
        const TEST: &str = "rights_given_up_by_root_are_gone";
        let Some(nobody) = unprivileged_user_or_skip(TEST).filter(|_| is_own_process(TEST, &[])) else {
            return;
        };
        let (tell, hear) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            hear.recv().unwrap();
            // SAFETY: cannot fail and has no conditions.
            (unsafe { libc::geteuid() }, capability::effective().unwrap())
        });
        drop_to(Some(&nobody)).unwrap();
        tell.send(()).unwrap();
        assert_eq!(other.join().unwrap(), (nobody.uid, 0), "older threads lose them too");
        // SAFETY: takes an integer only.
        assert_eq!(unsafe { libc::setuid(0) }, -1);
        assert!(crate::PacketSocket::open().unwrap_err().errno() == libc::EPERM);
    }
}
