//! Giving up what is no longer needed once the sockets are open.
//!
//! ```text
//! root, set-uid or sudo:  setgroups -> setresgid -> setresuid     to the user who called, or one that was named
//! always:                 capset(nothing), no_new_privs           nothing can be got back, not by exec either
//! ```
//!
//! Capabilities and no_new_privs belong to a thread and are inherited by those it makes: drop first, then make threads.

use std::ffi::{CStr, CString};
use std::ptr;

use crate::error::check;
use crate::{SyscallError, capability};

/// The most groups that the kernel keeps for a user (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

/// Room for one line of the user database; larger ones are not found.
const RECORD_LEN_MAX: usize = 1 << 20;

/// A user to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// Its first group.
    pub gid: u32,
    /// All of its groups.
    pub groups: Vec<u32>,
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

    /// The unprivileged user on whose behalf this privileged process runs: who called the set-uid program, or who
    /// called sudo(8) or doas(1). `None` if that is root itself.
    pub fn of_caller() -> Option<Identity> {
        // SAFETY: getuid(2) cannot fail and has no conditions.
        let real = unsafe { libc::getuid() };
        let named = || std::env::var("SUDO_UID").ok()?.parse().ok();
        let by_name = || Identity::of_name(&std::env::var("DOAS_USER").ok()?).map(|user| user.uid);
        let uid = if real != 0 { real } else { named().or_else(by_name)? };
        (uid != 0).then(|| Identity::of_uid(uid)).flatten()
    }
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: geteuid(2) cannot fail and has no conditions.
    unsafe { libc::geteuid() == 0 }
}

/// Becomes `identity`, if one is given, and gives up every capability, for good. All threads change the user; threads
/// made earlier keep what capabilities they hold as that user (none, after leaving root).
///
/// # Errors
/// `EPERM` without `CAP_SETUID` and `CAP_SETGID`, if the identity is another. Nothing should go on after an error.
pub fn drop_to(identity: Option<&Identity>) -> Result<(), SyscallError> {
    if let Some(identity) = identity {
        become_user(identity)?;
    }
    capability::drop_all()?;
    // SAFETY: prctl(2) with this option takes integers only.
    check("prctl(PR_SET_NO_NEW_PRIVS)", unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    verify(identity)
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

/// Looks at what was reached, so that a call that did less than it said is no silent loss.
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
        let name = name.to_string_lossy().into_owned();
        return Some(Identity { name, uid: record.pw_uid, gid: record.pw_gid, groups });
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

    /// Dropping is for good and for the whole process, so a process of its own does it: this test again, told so.
    #[test]
    fn what_root_gave_up_is_gone() {
        const CHILD: &str = "TAPLINE_TEST_DROPS_PRIVILEGES";
        let Some(nobody) = Identity::of_name("nobody").filter(|_| is_root()) else {
            eprintln!("skipped: what_root_gave_up_is_gone: not root, or no user nobody");
            return;
        };
        if std::env::var_os(CHILD).is_none() {
            let test = std::env::current_exe().unwrap();
            let arguments = ["--exact", "privilege::tests::what_root_gave_up_is_gone"];
            let child = std::process::Command::new(test).args(arguments).env(CHILD, "1").output().unwrap();
            assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
            return;
        }
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
