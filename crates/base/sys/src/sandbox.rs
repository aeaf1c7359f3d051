//! The confinement of a process once all is open.
//!
//! ```text
//! Landlock   files: read /etc, /proc, /sys, libraries; what is needed besides ([`AllowedAccess`]). No TCP, no signals to others, no abstract sockets.
//! seccomp    system calls: those of the lists below. All others fail with EPERM, among them exec, setns, bpf, mount, ptrace.
//! ```
//!
//! Both hold for the calling thread and those that it makes, and cannot be undone. Sockets, rings, buffers are open by
//! then or need no more: an interface that comes back is taken up by a socket that is there.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use libc::{c_long, c_ulong};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use crate::privilege;

/// The newest version of Landlock whose rules are used; older kernels enforce some of them.
const LANDLOCK: ABI = ABI::V6;
/// Folders that every command reads: names of services, users, groups; facts about this process and about interfaces;
/// modules of the C library that look users up.
const READ: [&str; 7] = ["/etc", "/proc", "/sys", "/lib", "/lib64", "/usr", "/run"];
/// Allowed families of sockets: to look users up, to notify systemd, to ask for interfaces.
const FAMILIES: [i32; 2] = [libc::AF_UNIX, libc::AF_NETLINK];
/// Further families of commands that send records to collectors, or ask for names.
const FAMILIES_OF_IP: [i32; 2] = [libc::AF_INET, libc::AF_INET6];
/// Flags of clone(2) that make a namespace; a user namespace would give the new thread every capability within.
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;
/// Commands of bpf(2) to run a program (`BPF_PROG_TEST_RUN`), and to read its counters (`BPF_OBJ_GET_INFO_BY_FD`).
const BPF_COMMANDS: [i32; 2] = [10, 15];
/// Requests to a terminal that type into it, for the next reader of its input (ioctl_tty(2)).
const TYPING: [c_ulong; 2] = [libc::TIOCSTI as c_ulong, 0x541C];

/// Parts of the confinement that this kernel lacks, in words; empty if none.
pub type MissingConfinement = Vec<String>;

/// Files and sockets that stay allowed in addition to those of every command.
#[derive(Clone, Debug, Default)]
pub struct AllowedAccess {
    /// Files and folders that may be read; of folders, all that is in them.
    pub reads: Vec<PathBuf>,
    /// Files that may be written to, such as pipes, but not created.
    pub writes: Vec<PathBuf>,
    /// Folders in which files and folders may be created, written, renamed and removed.
    pub makes: Vec<PathBuf>,
    /// Folders from which files may be removed.
    pub removes: Vec<PathBuf>,
    /// Whether all files stay allowed to which the user has rights.
    pub all_files: bool,
    /// Whether IP sockets are allowed: for collectors, or for queries of names.
    pub ip: bool,
    /// Whether connections are awaited with epoll(7), as servers with many clients do.
    pub is_server: bool,
    /// Whether connections to sockets with abstract names (unix(7)) are allowed.
    pub abstract_sockets: bool,
    /// Whether programs that were loaded into the kernel may be run and asked for their counters (bpf(2)).
    pub runs_programs: bool,
}

/// Confines this thread, and those that it makes later, to `needs` and the access of every command. On a kernel that
/// lacks a part the other parts hold; the result names those that are missing.
pub fn confine(needs: &AllowedAccess) -> MissingConfinement {
    let mut lacks = MissingConfinement::new();
    match landlock(needs) {
        // Older kernels know fewer kinds of access; those of files all do.
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => {}
        Ok(RulesetStatus::NotEnforced) => {
            lacks.push("this kernel has no Landlock: files stay within reach".to_owned())
        }
        Err(error) => lacks.push(format!("no Landlock: files stay within reach: {error}")),
    }
    let makes = !needs.makes.is_empty() || needs.all_files;
    let of_makers = if makes { CALLS_OF_MAKERS } else { &[] };
    // Root that stays root gives what it makes to the owner of the folder.
    let of_root = if makes && privilege::is_root() { &[libc::SYS_fchown][..] } else { &[] };
    let calls = [CALLS, of_makers, of_root, if needs.is_server { CALLS_OF_SERVERS } else { &[] }].concat();
    let bpf = if needs.runs_programs { &BPF_COMMANDS[..] } else { &[] };
    let families = [&FAMILIES[..], if needs.ip { &FAMILIES_OF_IP } else { &[] }].concat();
    if let Err(error) = seccomp(&calls, &families, bpf) {
        lacks.push(format!("no seccomp: all system calls stay within reach: {error}"));
    }
    lacks
}

/// Confines this thread, which is the only one, to files in one folder, the sockets that are open, and memory.
pub(crate) fn confine_to_folder(folder: BorrowedFd<'_>) -> MissingConfinement {
    let mut lacks = MissingConfinement::new();
    let landlock = || -> Result<RulesetStatus, RulesetError> {
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
        let ruleset = ruleset.handle_access(AccessFs::from_all(LANDLOCK))?;
        let ruleset = ruleset.handle_access(AccessNet::from_all(LANDLOCK))?;
        let created = ruleset.scope(Scope::Signal)?.scope(Scope::AbstractUnixSocket)?.create()?;
        Ok(created.add_rule(PathBeneath::new(folder, making()))?.restrict_self()?.ruleset)
    };
    if !matches!(landlock(), Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced)) {
        lacks.push("no Landlock".to_owned());
    }
    if seccomp(CALLS_OF_AN_OPENER, &[], &[]).is_err() {
        lacks.push("no seccomp".to_owned());
    }
    lacks
}

/// To make files and folders, write, rename and remove them.
fn making() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer
}

fn landlock(needs: &AllowedAccess) -> Result<RulesetStatus, RulesetError> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).scope(Scope::Signal)?;
    if !needs.all_files {
        ruleset = ruleset.handle_access(AccessFs::from_all(LANDLOCK))?;
    }
    if !needs.ip {
        ruleset = ruleset.handle_access(AccessNet::from_all(LANDLOCK))?;
    }
    if !needs.abstract_sockets {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket)?;
    }
    let mut created = ruleset.create()?;
    if !needs.all_files {
        created = created.add_rules(path_beneath_rules(READ, read))?;
        created = created.add_rules(path_beneath_rules(&needs.reads, read))?;
        created =
            created.add_rules(path_beneath_rules(&needs.writes, AccessFs::WriteFile | AccessFs::Truncate))?;
        created = created.add_rules(path_beneath_rules(&needs.makes, making()))?;
        for folder in needs.removes.iter().filter_map(|folder| PathFd::new(folder).ok()) {
            created = created.add_rule(PathBeneath::new(folder, AccessFs::RemoveFile))?;
        }
    }
    Ok(created.restrict_self()?.ruleset)
}

/// The folder of a file.
pub fn folder_of(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// The folder, or the first above it that is there.
pub fn nearest_folder(folder: &Path) -> PathBuf {
    let found = folder.ancestors().find(|folder| folder.is_dir());
    found.map_or_else(|| ".".into(), Path::to_owned)
}

fn seccomp(calls: &[c_long], families: &[i32], bpf: &[i32]) -> Result<(), seccompiler::Error> {
    // The C library then makes threads by clone(2), whose flags can be looked at.
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    apply(unknown, &[], SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    // The filter above answers clone3 with ENOSYS, which holds because this one lets the call pass.
    let mut rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let dword = SeccompCmpArgLen::Dword;
    let is_first = |value: &i32| {
        SeccompRule::new(vec![SeccompCondition::new(0, dword.clone(), SeccompCmpOp::Eq, *value as u64)?])
    };
    if !bpf.is_empty() {
        rules.insert(libc::SYS_bpf, bpf.iter().map(is_first).collect::<Result<_, _>>()?);
    }
    if !families.is_empty() {
        rules.insert(libc::SYS_socket, families.iter().map(is_first).collect::<Result<_, _>>()?);
        // Threads, no processes, and in no namespace of their own.
        let looked_at = (NAMESPACES | libc::CLONE_THREAD) as u32;
        let is_thread = SeccompCmpOp::MaskedEq(u64::from(looked_at));
        let thread = SeccompCondition::new(0, dword.clone(), is_thread, libc::CLONE_THREAD as u64)?;
        rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![thread])?]);
        let not = |request: c_ulong| SeccompCondition::new(1, dword.clone(), SeccompCmpOp::Ne, request);
        let ioctl = TYPING.into_iter().map(not).collect::<Result<_, _>>()?;
        rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(ioctl)?]);
    }
    apply(rules, calls, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// Installs the filter of the rules, which look at arguments, and of calls that are listed whatever their arguments.
fn apply(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    calls: &[c_long],
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<(), seccompiler::Error> {
    seccompiler::apply_filter(&program(rules, calls, otherwise, listed)?)
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    calls: &[c_long],
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, seccompiler::Error> {
    let calls: Vec<c_long> = calls.iter().copied().filter(|call| !rules.contains_key(call)).collect();
    let filter = SeccompFilter::new(rules, otherwise, listed.clone(), std::env::consts::ARCH.try_into()?)?;
    let mut program = filter.try_into()?;
    insert_calls(&mut program, &calls, listed.into());
    Ok(program)
}

/// Inserts comparisons of the number of the call, behind its load, which return `action`. One for each call: the
/// library makes five instructions of it, and the kernel, which compiles a filter and runs it for each number there
/// is, took 0.4 ms of every start for them.
fn insert_calls(program: &mut BpfProgram, calls: &[c_long], action: u32) {
    let op = |code: u32, jt: usize, k: u32| sock_filter {
        code: code as u16,
        jt: u8::try_from(jt).expect("fewer than 256 calls"),
        jf: 0,
        k,
    };
    let is_load =
        |op: &sock_filter| u32::from(op.code) == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS && op.k == 0;
    let behind = program.iter().position(is_load).expect("the library loads the number of the call") + 1;
    let equals = |(index, call): (usize, &c_long)| {
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, calls.len() - index, *call as u32)
    };
    let end = [op(libc::BPF_JMP | libc::BPF_JA, 0, 1), op(libc::BPF_RET | libc::BPF_K, 0, action)];
    program.splice(behind..behind, calls.iter().enumerate().map(equals).chain(end));
}

/// Calls that serving and capturing need, and the C library, and threads that end in a panic; `socket`, `clone` and
/// `ioctl` are checked by their arguments.
#[rustfmt::skip]
const CALLS: &[c_long] = &[
    // Files and descriptors.
    libc::SYS_openat, libc::SYS_read, libc::SYS_readv, libc::SYS_pread64, libc::SYS_preadv2,
    libc::SYS_write, libc::SYS_writev, libc::SYS_pwrite64, libc::SYS_close,
    libc::SYS_lseek, libc::SYS_fcntl, libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
    libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_unlinkat, libc::SYS_dup, libc::SYS_dup3,
    libc::SYS_pipe2, libc::SYS_eventfd2, libc::SYS_memfd_create, libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_flock, libc::SYS_ioprio_set,
    // Sockets; which may be made is told apart.
    libc::SYS_accept, libc::SYS_accept4, libc::SYS_bind, libc::SYS_connect, libc::SYS_getpeername, libc::SYS_getsockname, libc::SYS_getsockopt,
    libc::SYS_setsockopt, libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    // Memory. Filters become native code: pages are written first and executed later, never both.
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_membarrier,
    // Threads, signals, time.
    libc::SYS_exit, libc::SYS_exit_group, libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_rseq,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack, libc::SYS_restart_syscall, libc::SYS_tgkill,
    libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_clock_gettime,
    libc::SYS_clock_getres, libc::SYS_gettimeofday, libc::SYS_getrusage,
    // Our process and user.
    libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_prctl,
    libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getrandom,
    // Old names that x86-64 still has.
    #[cfg(target_arch = "x86_64")] libc::SYS_open, #[cfg(target_arch = "x86_64")] libc::SYS_stat, #[cfg(target_arch = "x86_64")] libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")] libc::SYS_access, #[cfg(target_arch = "x86_64")] libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")] libc::SYS_unlink, #[cfg(target_arch = "x86_64")] libc::SYS_poll, #[cfg(target_arch = "x86_64")] libc::SYS_select,
    #[cfg(target_arch = "x86_64")] libc::SYS_dup2, #[cfg(target_arch = "x86_64")] libc::SYS_pipe, #[cfg(target_arch = "x86_64")] libc::SYS_time,
];

/// Further calls for commands that make files: names, folders, and syncing to disk.
#[rustfmt::skip]
const CALLS_OF_MAKERS: &[c_long] = &[
    libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_linkat, libc::SYS_mkdirat, libc::SYS_renameat2, libc::SYS_statfs,
    libc::SYS_fstatfs, libc::SYS_fchmod,
    #[cfg(target_arch = "x86_64")] libc::SYS_rename, #[cfg(target_arch = "x86_64")] libc::SYS_mkdir, #[cfg(target_arch = "x86_64")] libc::SYS_rmdir,
    #[cfg(not(target_arch = "riscv64"))] libc::SYS_renameat,
];

/// Calls of a server that waits for many clients.
#[rustfmt::skip]
const CALLS_OF_SERVERS: &[c_long] = &[
    libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")] libc::SYS_epoll_wait,
];

/// Calls of a process that opens files for another.
#[rustfmt::skip]
const CALLS_OF_AN_OPENER: &[c_long] = &[
    libc::SYS_openat, libc::SYS_close, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_fchown, libc::SYS_ftruncate, libc::SYS_flock,
    libc::SYS_renameat2, libc::SYS_unlinkat, libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap,
    libc::SYS_mremap, libc::SYS_madvise, libc::SYS_futex, libc::SYS_rt_sigreturn, libc::SYS_rt_sigprocmask, libc::SYS_restart_syscall,
    libc::SYS_getrandom, libc::SYS_getpid, libc::SYS_gettid, libc::SYS_exit, libc::SYS_exit_group,
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    use tapline_bpf::Insn;
    use tapline_packet::{Meta, Packet};

    use super::*;

    #[track_caller]
    fn denied(result: std::io::Result<()>, attempt: &str) {
        let error = result.expect_err(attempt);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{attempt}");
    }

    /// No process in a namespace of its own, and no input for a terminal.
    fn calls_are_refused() {
        // SAFETY: takes integers only, and makes nothing: the flags are refused.
        let made_process =
            unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD, 0, 0, 0, 0) };
        assert_eq!(made_process, -1, "a process with a namespace of its own was made");
        for request in TYPING {
            // SAFETY: the pointer is to a byte that lives through the call, whatever the descriptor is.
            let typed = unsafe { libc::ioctl(0, request, c"x".as_ptr()) };
            let errno = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((typed, errno), (-1, Some(libc::EPERM)), "a terminal was typed into");
        }
    }

    /// Our comparisons, and the library's, give one verdict on every call, also of the other architectures.
    #[test]
    fn calls_have_the_verdict_of_the_library() {
        let is_typing =
            SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, TYPING[0]).unwrap();
        let rules = BTreeMap::from([(libc::SYS_ioctl, vec![SeccompRule::new(vec![is_typing]).unwrap()])]);
        let of_calls = CALLS.iter().map(|&call| (call, Vec::new()));
        let all = of_calls.chain(rules.clone()).collect();
        let calls = [CALLS, &[libc::SYS_ioctl]].concat();
        let [ours, library] = [(rules, &calls[..]), (all, &[])].map(|(rules, calls)| {
            let verdicts = (SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow);
            let ops = program(rules, calls, verdicts.0, verdicts.1).unwrap();
            let ops = ops.iter().map(|op| Insn { code: op.code, jt: op.jt, jf: op.jf, k: op.k });
            tapline_bpf::Program::new(ops.collect()).unwrap()
        });
        assert!(ours.insns().len() * 3 < library.insns().len());
        let architecture = library.insns()[1].k;
        let meta = Meta::default();
        for (call, of) in (0..600).flat_map(|call| [(call, architecture), (call, 0x4000_0003)]) {
            for request in [0, TYPING[0] as u32] {
                // struct seccomp_data: call, architecture, address, arguments; the low word first.
                let words = [call, of, 0, 0, 0, 0, request, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                let data = words.map(u32::to_be_bytes).concat();
                let verdict =
                    |program: &tapline_bpf::Program| program.run(Packet { data: &data, meta: &meta });
                assert_eq!(
                    verdict(&ours),
                    verdict(&library),
                    "call {call} of {of:#x}, argument {request:#x}"
                );
            }
        }
    }

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
        let made = folder.path().join("made");
        fs::create_dir(&made).unwrap();
        let test = move || {
            let folder = |path: &Path| vec![folder_of(path).unwrap().to_owned()];
            let needs = AllowedAccess {
                reads: folder(&rules),
                removes: folder(&socket),
                makes: vec![made.clone()],
                ..AllowedAccess::default()
            };
            let lacks = confine(&needs);
            if !lacks.is_empty() {
                eprintln!("little_is_left: skipped: {lacks:?}");
                return;
            }
            denied(fs::read(&other).map(drop), "another's file was read");
            denied(fs::write(&rules, "y"), "rules were written");
            denied(fs::write(socket.with_file_name("new"), "y"), "a file was made");
            denied(TcpListener::bind("127.0.0.1:0").map(drop), "TCP");
            denied(UdpSocket::bind("127.0.0.1:0").map(drop), "UDP");
            denied(Command::new("/bin/true").spawn().map(drop), "a program was started");
            calls_are_refused();
            fs::create_dir(made.join("a")).unwrap();
            fs::write(made.join("a/b.part"), "y").unwrap();
            fs::rename(made.join("a/b.part"), made.join("a/b")).unwrap();
            let unnamed = crate::unnamed::create(&made.join("a"));
            if let Ok(file) = unnamed {
                file.sync_data().unwrap();
                crate::unnamed::name(&file, &made.join("a/c")).unwrap();
            }
            assert_eq!(fs::read(&rules).unwrap(), b"x");
            assert!(fs::read("/etc/passwd").is_ok());
            UnixStream::pair().unwrap();
            let by_thread = other.clone();
            thread::spawn(move || denied(fs::write(by_thread, "y"), "a thread is free")).join().unwrap();
            fs::remove_file(&socket).unwrap();
        };
        thread::spawn(test).join().unwrap();
        // Others are not confined.
        fs::write(folder.path().join("other"), "free").unwrap();
    }
}
