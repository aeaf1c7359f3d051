//! Files opened by a process that kept its rights, for a program that gave its own up.
//!
//! ```text
//! program (user)                        opener (the user, CAP_DAC_OVERRIDE; Landlock: one folder; seccomp)
//!                ◄─── ready ────────
//!   create NAME  ──── seqpacket ────►   openat(dir, NAME, O_EXCL); or an old one of the user's
//!                ◄─── errno, fd ─────
//!   rename A B   ────────────────────►  renameat(dir, A, dir, B)
//!                ◄─── errno ─────────
//!   (socket closed) ─────────────────►  exits
//! ```
//!
//! A capture that begins a new file every minute goes on doing so after it dropped root, in a directory where the user
//! may not write. The opener does nothing else: names are single components of the one directory that was opened at
//! the start, and begin as the name that the user gave does. It never sees a packet. Files that were there before and
//! belong to others it leaves alone, so that a program that fell to a hostile packet cannot turn it against them.
//!
//! The opener runs as the user itself, with the one capability that folders of others take. So the kernel too keeps
//! it from files of others, as far as that is not a matter of modes: links of others, sticky folders, owners.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use crate::capability::{self, Capability};
use crate::disk::rename_at;
use crate::error::{check, check_len};
use crate::{SyscallError, helper, output_file, privilege, sandbox};

/// The longest request: an operation, two names of at most 255 bytes, a NUL after each.
const REQUEST_MAX: usize = 1 + 2 * 256;
/// Room for one control message with one descriptor, aligned as `cmsghdr` is.
const CONTROL_WORDS: usize = 8;

/// Operations of a request.
const CREATE: u8 = b'c';
const RENAME: u8 = b'r';
const REMOVE: u8 = b'd';

/// The user and group that new files belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The program's end of the connection to its opener. Dropping it ends the opener.
#[derive(Debug)]
pub struct Opener {
    socket: OwnedFd,
}

impl Opener {
    /// Starts an opener for names of `directory` that begin with `prefix`. New files belong to `owner`, if given, and
    /// have mode 0640 less the umask if root makes them.
    ///
    /// Call it before the process has more than one thread: the opener is a fork, and a fork of a threaded process may
    /// find locks held for ever.
    ///
    /// # Errors
    /// If the directory cannot be opened, a process or socket cannot be made, or rights cannot be given up.
    pub fn start(directory: &Path, prefix: &OsStr, owner: Option<FileOwner>) -> Result<Opener, SyscallError> {
        let directory = open_directory(directory)?;
        let (ours, theirs) = socket_pair()?;
        let mode = output_file::mode();
        // SAFETY: fork has no memory preconditions; the child runs only `serve`, which ends in `_exit`, so that no
        // destructor or buffer of the parent runs twice. The caller is asked to be single-threaded.
        match check("fork", unsafe { libc::fork() })? {
            0 => {
                drop(ours);
                let place = OpenerState { directory, prefix: prefix.as_bytes().to_vec(), mode, owner };
                serve(&theirs, &place)
            }
            _ => {
                drop(theirs);
                let mut ready = [0u8; 4];
                let fail = |source| SyscallError { call: "starting the process that creates files", source };
                match receive(&ours, &mut ready).map(|(len, _)| (len, i32::from_ne_bytes(ready))) {
                    Ok((4, 0)) => Ok(Opener { socket: ours }),
                    Ok((4, errno)) => Err(fail(io::Error::from_raw_os_error(errno))),
                    Ok(_) => Err(fail(io::ErrorKind::UnexpectedEof.into())),
                    Err(error) => Err(fail(error)),
                }
            }
        }
    }

    /// Creates the file `name`, or empties it if it exists, for writing.
    ///
    /// # Errors
    /// As open(2); `AlreadyExists` if it exists and is not a file of the owner's; `InvalidInput` if `name` is not a
    /// single component.
    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        let fd = self.ask(CREATE, &[name])?;
        fd.map(File::from).ok_or_else(|| io::Error::other("the opener sent no file"))
    }

    /// Renames a file within the directory, replacing a file of the new name.
    ///
    /// # Errors
    /// As rename(2); `AlreadyExists` if one of the two is not a file of the owner's.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.ask(RENAME, &[from, to]).map(|_| ())
    }

    /// Removes a file of the directory.
    ///
    /// # Errors
    /// As unlink(2); `AlreadyExists` if it is not a file of the owner's.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        self.ask(REMOVE, &[name]).map(|_| ())
    }

    fn ask(&self, operation: u8, names: &[&OsStr]) -> io::Result<Option<OwnedFd>> {
        let mut request = vec![operation];
        for name in names {
            if !is_component(name.as_bytes()) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file name without '/' is needed"));
            }
            request.extend_from_slice(name.as_bytes());
            request.push(0);
        }
        let mut answer = [0u8; 4];
        send(&self.socket, &request, None).map_err(has_ended)?;
        let (len, fd) = receive(&self.socket, &mut answer).map_err(has_ended)?;
        match (len, i32::from_ne_bytes(answer)) {
            (4, 0) => Ok(fd),
            (4, errno) => Err(io::Error::from_raw_os_error(errno)),
            _ => Err(has_ended(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// Not the kind of the socket's own error: a broken pipe would mean that the reader of an output has gone.
fn has_ended(error: io::Error) -> io::Error {
    io::Error::other(format!("the process that creates files for us has ended ({error})"))
}

/// Whether `name` is one path component that a directory can hold.
fn is_component(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && !name.contains(&b'/')
        && !name.contains(&0)
        && name != b"."
        && name != b".."
}

struct OpenerState {
    directory: OwnedFd,
    /// The prefix that every name must have.
    prefix: Vec<u8>,
    /// Mode of new files, before the umask is taken off.
    mode: u32,
    owner: Option<FileOwner>,
}

/// The opener's life: answers until the program has gone.
fn serve(socket: &OwnedFd, place: &OpenerState) -> ! {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE, libc::SIGUSR1] {
        // SAFETY: ignoring a signal installs no handler. The program decides when the work ends, by its socket.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    helper::close_others(&[socket.as_raw_fd(), place.directory.as_raw_fd()]);
    let ready = give_up(place).map_or_else(|error| error.errno(), |()| 0);
    if send(socket, &i32::to_ne_bytes(ready), None).is_err() || ready != 0 {
        // SAFETY: as below.
        unsafe { libc::_exit(1) }
    }
    let mut request = [0u8; REQUEST_MAX];
    while let Ok((len, _)) = receive(socket, &mut request) {
        if len == 0 {
            break;
        }
        let (errno, fd) = match obey(&request[..len], place) {
            Ok(fd) => (0, fd),
            Err(error) => (error.raw_os_error().unwrap_or(libc::EINVAL), None),
        };
        if send(socket, &i32::to_ne_bytes(errno), fd.as_ref()).is_err() {
            break;
        }
    }
    // SAFETY: ends this process without running the parent's exit handlers or flushing its buffers.
    unsafe { libc::_exit(0) }
}

/// Becomes the user whose files these are, with the right to write into the directory, and is confined to it.
fn give_up(place: &OpenerState) -> Result<(), SyscallError> {
    let overrides = Capability::DacOverride.is_effective()?;
    let kept = [Capability::DacOverride];
    let kept = if overrides { &kept[..] } else { &[] };
    if let Some(owner) = place.owner {
        privilege::become_keeping(owner.uid, owner.gid, kept)?;
    } else {
        capability::keep_only(kept)?;
    }
    privilege::take_no_new()?;
    // On a kernel with neither Landlock nor seccomp, the user, one capability and the check of names confine the
    // opener.
    sandbox::confine_to_folder(place.directory.as_fd());
    Ok(())
}

fn obey(request: &[u8], place: &OpenerState) -> io::Result<Option<OwnedFd>> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let (operation, names) = request.split_first().ok_or_else(invalid)?;
    let is_name = |name: &&[u8]| is_component(name) && name.starts_with(&place.prefix);
    let mut names = names.split(|&byte| byte == 0).filter(is_name);
    let mut name = || names.next().and_then(|name| CString::new(name).ok()).ok_or_else(invalid);
    match *operation {
        CREATE => create(place, &name()?).map(Some),
        RENAME => rename(place, &name()?, &name()?).map(|()| None),
        REMOVE => remove(place, &name()?).map(|()| None),
        _ => Err(invalid()),
    }
}

fn create(place: &OpenerState, name: &CString) -> io::Result<OwnedFd> {
    let new = open_at(place, name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL);
    match (new, place.owner) {
        // Folders may give their group to what is made in them.
        (Ok(file), Some(FileOwner { uid, gid })) => {
            lock(&file)?;
            fchown(&file, Some(uid), Some(gid)).map(|()| file.into())
        }
        (Err(error), _) if error.kind() == io::ErrorKind::AlreadyExists => empty(place, name),
        (Ok(file), None) => lock(&file).map(|()| file.into()),
        (Err(error), _) => Err(error),
    }
}

/// Locks a file as long as its descriptor is open, wherever that goes: `ETXTBSY` if another program writes to it. File
/// systems without locks do without.
fn lock(file: &File) -> io::Result<()> {
    match output_file::lock(file) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ETXTBSY)),
    }
}

/// Opens a file that exists, if it is the owner's, and truncates it.
fn empty(place: &OpenerState, name: &CString) -> io::Result<OwnedFd> {
    check_owner(place, name)?;
    // Not to wait for the reader of a pipe that has taken the file's place.
    let file = open_at(place, name, libc::O_WRONLY | libc::O_NONBLOCK)?;
    if !is_of(&file, place.owner)? {
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    // Another user may have given one of the owner's files this name.
    if file.metadata()?.nlink() > 1 {
        return Err(io::Error::from_raw_os_error(libc::EMLINK));
    }
    lock(&file)?;
    file.set_len(0).map(|()| file.into())
}

fn rename(place: &OpenerState, from: &CString, to: &CString) -> io::Result<()> {
    check_owner(place, from)?;
    let flags = match check_owner(place, to) {
        // A file that is put there from now on is not replaced.
        Err(error) if error.kind() == io::ErrorKind::NotFound => libc::RENAME_NOREPLACE,
        other => other.map(|()| 0)?,
    };
    let dir = place.directory.as_raw_fd();
    let move_with =
        |flags: libc::c_uint| rename_at((dir, from), (dir, to), flags).map_err(|error| error.source);
    match move_with(flags as libc::c_uint) {
        // File systems that always replace.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) && flags != 0 => move_with(0),
        other => other,
    }
}

fn remove(place: &OpenerState, name: &CString) -> io::Result<()> {
    check_owner(place, name)?;
    // SAFETY: `name` is a NUL-terminated string that lives through the call.
    let result = unsafe { libc::unlinkat(place.directory.as_raw_fd(), name.as_ptr(), 0) };
    check("unlinkat", result).map(|_| ()).map_err(|error| error.source)
}

/// `EEXIST` if the name is not a regular file of the owner's. With `O_PATH` nothing is opened for real: no device
/// notices.
fn check_owner(place: &OpenerState, name: &CString) -> io::Result<()> {
    match is_of(&open_at(place, name, libc::O_PATH)?, place.owner)? {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EEXIST)),
    }
}

fn is_of(file: &File, owner: Option<FileOwner>) -> io::Result<bool> {
    let metadata = file.metadata()?;
    Ok(metadata.is_file() && owner.is_none_or(|owner| owner.uid == metadata.uid()))
}

/// openat(2), never through a link.
fn open_at(place: &OpenerState, name: &CString, flags: libc::c_int) -> io::Result<File> {
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let directory = place.directory.as_raw_fd();
    // SAFETY: `name` is a NUL-terminated string that lives through the call.
    let fd = check("openat", unsafe { libc::openat(directory, name.as_ptr(), flags, place.mode) })
        .map_err(|error| error.source)?;
    // SAFETY: openat gave us this descriptor just now, so it is open and ours alone.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn open_directory(path: &Path) -> Result<OwnedFd, SyscallError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| SyscallError::from_errno("open(directory)", libc::EINVAL))?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: `path` is a NUL-terminated string that lives through the call.
    let fd = check("open(directory)", unsafe { libc::open(path.as_ptr(), flags) })?;
    // SAFETY: open gave us this descriptor just now, so it is open and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn socket_pair() -> Result<(OwnedFd, OwnedFd), SyscallError> {
    let mut fds: [RawFd; 2] = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two descriptors into the array of two.
    check("socketpair", unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    // SAFETY: socketpair gave us both just now, so they are open and ours alone.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// Sends one message with `bytes`, and a descriptor if there is one.
fn send(socket: &OwnedFd, bytes: &[u8], fd: Option<&OwnedFd>) -> io::Result<()> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = empty_message(&mut part);
    if let Some(fd) = fd {
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE computes a length.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
        debug_assert!(message.msg_controllen <= size_of_val(&control) as _);
        // SAFETY: the control buffer is aligned for cmsghdr and long enough for one header and one descriptor, as the
        // assertion says, so the first header and its data lie within it.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd.as_raw_fd());
        }
    }
    // SAFETY: the message points to `bytes`, which the kernel only reads, and to `control`; all live through the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
    check_len("sendmsg", sent).map(|_| ()).map_err(|error| error.source)
}

/// One message into `bytes`: its length, 0 when the other side has gone, and the descriptor that came with it.
fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = empty_message(&mut part);
    message.msg_control = control.as_mut_ptr().cast();
    // Room for one descriptor: of several in one message the kernel closes the others.
    // SAFETY: CMSG_LEN computes a length.
    message.msg_controllen = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) } as _;
    let len = loop {
        // SAFETY: the kernel writes at most the lengths given into `bytes` and `control`, which live through the call.
        let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
        match check_len("recvmsg", result) {
            Err(error) if error.errno() == libc::EINTR => {}
            other => break other.map_err(|error| error.source)?,
        }
    };
    // SAFETY: the kernel filled the control buffer and set its length; CMSG_FIRSTHDR checks that a header fits, and a
    // message of SCM_RIGHTS holds at least one descriptor, which is now open and ours alone.
    let fd = unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        let rights = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        rights.then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()))
    };
    Ok((len, fd))
}

fn empty_message(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: msghdr is plain data for which all zeros means: no address, no parts, no control data.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_components_are_names() {
        for bad in ["", ".", "..", "a/b", "/etc/passwd", "../x"] {
            assert!(!is_component(bad.as_bytes()), "{bad}");
        }
        assert!(!is_component(&[b'x'; 256]));
        assert!(is_component(b"trace-0001.pcapng.part"));
    }

    #[test]
    fn a_descriptor_crosses_the_socket() {
        let (a, b) = socket_pair().expect("a socket pair");
        let null = OwnedFd::from(File::open("/dev/null").expect("/dev/null"));
        send(&a, b"hello", Some(&null)).expect("sent");
        let mut bytes = [0; 16];
        let (len, fd) = receive(&b, &mut bytes).expect("received");
        assert_eq!((&bytes[..len], fd.is_some()), (&b"hello"[..], true));
        drop(a);
        assert_eq!(receive(&b, &mut bytes).expect("closed").0, 0);
    }

    #[test]
    fn of_many_descriptors_one_is_kept() {
        let (a, b) = socket_pair().expect("a socket pair");
        let script = "import socket,sys; s=socket.socket(fileno=0); socket.send_fds(s,[b'c'],[1]*12)";
        let sent = std::process::Command::new("python3").args(["-c", script]).stdin(a).status();
        if !sent.is_ok_and(|status| status.success()) {
            return eprintln!("skipped: of_many_descriptors_one_is_kept: no python3");
        }
        let target = std::fs::metadata("/proc/self/fd/1").expect("open");
        let count = || {
            let entries = std::fs::read_dir("/proc/self/fd").expect("listed").flatten();
            let same = |path: std::path::PathBuf| {
                std::fs::metadata(path)
                    .is_ok_and(|about| (about.dev(), about.ino()) == (target.dev(), target.ino()))
            };
            entries.filter(|entry| same(entry.path())).count()
        };
        let before = count();
        let (len, kept) = receive(&b, &mut [0; 16]).expect("received");
        assert_eq!((len, kept.is_some(), count()), (1, true, before + 1));
    }

    fn place(path: &Path, prefix: &str, owner: Option<FileOwner>) -> OpenerState {
        let directory = open_directory(path).expect("opened");
        OpenerState { directory, prefix: prefix.into(), mode: 0o640, owner }
    }

    /// The rights of an opener, as the kernel sees them; and its refusal of all names but those it was made for.
    #[test]
    fn an_opener_keeps_one_right_in_one_folder() {
        if !crate::privilege::is_root() {
            return eprintln!("skipped: an_opener_keeps_one_right_in_one_folder: not root");
        }
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("other"), "kept").expect("written");
        let owner = Some(FileOwner { uid: 65_534, gid: 65_534 });
        let opener = Opener::start(folder.path(), OsStr::new("out"), owner).expect("started");
        let children = format!("/proc/self/task/{}/children", crate::process::thread());
        let children = std::fs::read_to_string(children).expect("there is a process");
        let statuses: Vec<String> = children
            .split_whitespace()
            .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok())
            .collect();
        let kept = "CapEff:\t0000000000000002";
        let status = statuses.iter().find(|status| status.contains(kept)).expect("CAP_DAC_OVERRIDE alone");
        for line in
            ["CapPrm:\t0000000000000002", "NoNewPrivs:\t1", "Seccomp:\t2", "Uid:\t65534\t65534\t65534"]
        {
            assert!(status.contains(line), "{line}: {status}");
        }
        let file = opener.create(OsStr::new("out1")).expect("created in a folder of root's");
        let about = file.metadata().expect("open");
        assert_eq!((about.uid(), about.mode() & 0o777 & !0o640), (65_534, 0));
        opener.rename(OsStr::new("out1"), OsStr::new("out2")).expect("renamed");
        assert!(opener.create(OsStr::new("new")).is_err() && opener.remove(OsStr::new("other")).is_err());
        assert!(opener.rename(OsStr::new("out2"), OsStr::new("other")).is_err());
        assert_eq!(std::fs::read(folder.path().join("other")).expect("it is there"), b"kept");
        opener.remove(OsStr::new("out2")).expect("removed");
    }

    #[test]
    fn requests_are_obeyed_within_the_directory_only() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().to_owned();
        let directory = place(&path, "", None);
        assert!(obey(b"cone\0", &directory).expect("created").is_some());
        obey(b"rone\0two\0", &directory).expect("renamed");
        assert!(path.join("two").exists() && !path.join("one").exists());
        std::os::unix::fs::symlink("/etc/passwd", path.join("link")).expect("linked");
        assert_is_left_alone(obey(b"clink\0", &directory));
        let long = [&b"c"[..], &[b'x'; 4096]].concat();
        for hostile in [
            &b""[..],
            b"c",
            b"c\0\0",
            b"c.\0",
            b"c..\0",
            b"c../up\0",
            b"c/etc/x\0",
            b"rone\0",
            b"zone\0",
            &long,
        ] {
            assert!(obey(hostile, &directory).is_err(), "{hostile:?}");
        }
        obey(b"dtwo\0", &directory).expect("removed");
    }

    fn assert_is_left_alone(answer: io::Result<Option<OwnedFd>>) {
        assert_eq!(answer.expect_err("refused").raw_os_error(), Some(libc::EEXIST));
    }

    #[test]
    fn files_of_others_are_left_alone() {
        if !crate::privilege::is_root() {
            return eprintln!("skipped: files_of_others_are_left_alone: not root");
        }
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().to_owned();
        let directory = place(&path, "", Some(FileOwner { uid: 65_534, gid: 65_534 }));
        std::fs::write(path.join("roots"), "content").expect("written");
        let pipe = CString::new(path.join("pipe").as_os_str().as_bytes()).expect("no zero byte");
        // SAFETY: the path is a C string.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        obey(b"cours\0", &directory).expect("created");
        for request in
            [&b"croots\0"[..], b"cpipe\0", b"rours\0roots\0", b"rroots\0mine\0", b"droots\0", b"dpipe\0"]
        {
            assert_is_left_alone(obey(request, &directory));
        }
        let roots = std::fs::metadata(path.join("roots")).expect("it is there");
        assert_eq!((roots.uid(), roots.len()), (0, 7));
        std::fs::write(path.join("ours"), "old").expect("written");
        obey(b"cours\0", &directory).expect("emptied");
        let ours = std::fs::metadata(path.join("ours")).expect("it is there");
        assert_eq!((ours.uid(), ours.len()), (65_534, 0));
        obey(b"rours\0new\0", &directory).expect("renamed");
        obey(b"dnew\0", &directory).expect("removed");
    }

    #[test]
    fn an_opener_that_died_is_no_reader_that_has_gone() {
        let (ours, theirs) = socket_pair().expect("a socket pair");
        drop(theirs);
        let error = Opener { socket: ours }.create(OsStr::new("file")).expect_err("the other end is closed");
        assert_ne!(error.kind(), io::ErrorKind::BrokenPipe);
        assert!(error.to_string().contains("has ended"), "{error}");
    }
}
