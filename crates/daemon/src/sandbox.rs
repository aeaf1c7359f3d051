//! What the daemon may still do once all is open: little.
//!
//! ```text
//! Landlock   files: read /etc, /proc, /sys, libraries, the folder of the rules; remove the socket. No TCP, no signals to others.
//! seccomp    system calls: those of the list below. All others fail with EPERM, among them exec, setns, bpf, mount, ptrace.
//! ```
//!
//! Both hold for the calling thread and those that it makes, and cannot be undone. Sockets, rings, buffers are open by then or need no more: an interface
//! that comes back is taken up by a socket that is there.

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// The newest rules that are asked for; older kernels have some of them.
const LANDLOCK: ABI = ABI::V6;
/// Names of services, users, groups; what is known of ourselves and of interfaces; modules of the C library that look users up.
const READ: [&str; 7] = ["/etc", "/proc", "/sys", "/lib", "/lib64", "/usr", "/run"];
/// Families of sockets that may be made: to look users up, to tell systemd, to ask for interfaces.
const FAMILIES: [i32; 2] = [libc::AF_UNIX, libc::AF_NETLINK];

/// What was not to be had of the kernel, in words; nothing if all was.
pub type Lacks = Vec<String>;

/// Gives up, for this thread and those that it makes, what the daemon does not need to serve: `rules` are read again later, and `socket` removed.
pub fn confine(rules: Option<&Path>, socket: &Path) -> Lacks {
    let mut lacks = Lacks::new();
    match landlock(rules, socket) {
        // Older kernels know fewer kinds of access; those of files all do.
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => {}
        Ok(RulesetStatus::NotEnforced) => {
            lacks.push("this kernel has no Landlock: files stay within reach".to_owned())
        }
        Err(error) => lacks.push(format!("no Landlock: files stay within reach: {error}")),
    }
    if let Err(error) = seccomp() {
        lacks.push(format!("no seccomp: all system calls stay within reach: {error}"));
    }
    lacks
}

fn landlock(rules: Option<&Path>, socket: &Path) -> Result<RulesetStatus, RulesetError> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut created = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(READ, read))?;
    if let Some(folder) = rules.and_then(folder_of) {
        created = created.add_rules(path_beneath_rules([folder], read))?;
    }
    if let Some(folder) = folder_of(socket).and_then(|folder| PathFd::new(folder).ok()) {
        created = created.add_rule(PathBeneath::new(folder, AccessFs::RemoveFile))?;
    }
    Ok(created.restrict_self()?.ruleset)
}

/// Where a file is.
fn folder_of(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

fn seccomp() -> Result<(), seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = CALLS.iter().map(|&call| (call, Vec::new())).collect();
    let family = |family: i32| {
        let is = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family as u64)?;
        SeccompRule::new(vec![is])
    };
    rules.insert(libc::SYS_socket, FAMILIES.into_iter().map(family).collect::<Result<_, _>>()?);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)
}

/// Calls that serving takes, and the C library, and threads that end in a panic.
#[rustfmt::skip]
const CALLS: &[i64] = &[
    // Files and descriptors.
    libc::SYS_openat, libc::SYS_read, libc::SYS_readv, libc::SYS_pread64, libc::SYS_write, libc::SYS_writev, libc::SYS_pwrite64, libc::SYS_close,
    libc::SYS_lseek, libc::SYS_fcntl, libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
    libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_unlinkat, libc::SYS_dup, libc::SYS_dup3,
    libc::SYS_pipe2, libc::SYS_eventfd2, libc::SYS_memfd_create, libc::SYS_ioctl, libc::SYS_ppoll, libc::SYS_pselect6,
    // Sockets; which may be made is told apart.
    libc::SYS_accept, libc::SYS_accept4, libc::SYS_bind, libc::SYS_connect, libc::SYS_getpeername, libc::SYS_getsockname, libc::SYS_getsockopt,
    libc::SYS_setsockopt, libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_shutdown,
    libc::SYS_socketpair,
    // Memory. Filters become native code: pages are written first and executed later, never both.
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_membarrier,
    // Threads, signals, time.
    libc::SYS_clone, libc::SYS_clone3, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_rseq,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack, libc::SYS_restart_syscall, libc::SYS_tgkill,
    libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_clock_gettime,
    libc::SYS_clock_getres, libc::SYS_gettimeofday, libc::SYS_getrusage,
    // Who we are.
    libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_prctl,
    libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getrandom,
    // Old names that x86-64 still has.
    #[cfg(target_arch = "x86_64")] libc::SYS_open, #[cfg(target_arch = "x86_64")] libc::SYS_stat, #[cfg(target_arch = "x86_64")] libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")] libc::SYS_access, #[cfg(target_arch = "x86_64")] libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")] libc::SYS_unlink, #[cfg(target_arch = "x86_64")] libc::SYS_poll, #[cfg(target_arch = "x86_64")] libc::SYS_select,
    #[cfg(target_arch = "x86_64")] libc::SYS_dup2, #[cfg(target_arch = "x86_64")] libc::SYS_pipe, #[cfg(target_arch = "x86_64")] libc::SYS_time,
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    use super::*;

    /// Confines a thread of its own, and tries.
    #[test]
    fn little_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let (rules, socket) = (folder.path().join("rules/serve.toml"), folder.path().join("run/socket"));
        for path in [&rules, &socket] {
            fs::create_dir(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let other = folder.path().join("other");
        fs::write(&other, "secret").unwrap();
        let test = move || {
            let lacks = confine(Some(&rules), &socket);
            if !lacks.is_empty() {
                eprintln!("little_is_left: skipped: {lacks:?}");
                return;
            }
            let denied = |result: std::io::Result<()>, what: &str| {
                let error = result.expect_err(what);
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{what}");
            };
            denied(fs::read(&other).map(drop), "another's file was read");
            denied(fs::write(&rules, "y"), "rules were written");
            denied(fs::write(socket.with_file_name("new"), "y"), "a file was made");
            denied(TcpListener::bind("127.0.0.1:0").map(drop), "TCP");
            denied(UdpSocket::bind("127.0.0.1:0").map(drop), "UDP");
            denied(Command::new("/bin/true").spawn().map(drop), "a program was started");
            assert_eq!(fs::read(&rules).unwrap(), b"x");
            assert!(fs::read("/etc/passwd").is_ok());
            UnixStream::pair().unwrap();
            thread::spawn(move || denied(fs::write("/tmp/x", "y"), "a thread is free")).join().unwrap();
            fs::remove_file(&socket).unwrap();
        };
        thread::spawn(test).join().unwrap();
        // Others are not confined.
        fs::write(folder.path().join("other"), "free").unwrap();
    }
}
