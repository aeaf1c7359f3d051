//! Files on a disk: room (statvfs(3), fallocate(2)), and reading that leaves the page cache to others (preadv2(2),
//! open(2) `O_DIRECT`).

use std::ffi::{CStr, CString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{check, check_len};
use crate::{Poller, SyscallError};

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// The whole file system.
    pub total: u64,
    /// Bytes that an ordinary user may still fill.
    pub free: u64,
}

/// Space of the file system that this path is on.
///
/// # Errors
/// The error of statvfs(3); `ENOENT` for a path with a zero byte.
pub fn space(path: &Path) -> Result<DiskSpace, SyscallError> {
    const CALL: &str = "statvfs";
    let path = CString::new(path.as_os_str().as_bytes());
    let path = path.map_err(|_| SyscallError::from_errno(CALL, libc::ENOENT))?;
    // SAFETY: all-zero bytes are a valid statvfs.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a C string and `about` a statvfs; both live through the call.
    check(CALL, unsafe { libc::statvfs(path.as_ptr(), &raw mut about) })?;
    let bytes = |blocks: libc::fsblkcnt_t| blocks.saturating_mul(about.f_frsize);
    Ok(DiskSpace { total: bytes(about.f_blocks), free: bytes(about.f_bavail) })
}

/// Renames a file of a file system. A file that has the new name, or gets it meanwhile, stays: only on file systems that
/// always replace (`EINVAL`) one that gets it in the last moment does not.
///
/// # Errors
/// The error of renameat2(2): `EEXIST` if the name is taken.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
    let (old, new) = (name(from)?, name(to)?);
    let flags = libc::RENAME_NOREPLACE as libc::c_uint;
    let moved = rename_at((libc::AT_FDCWD, &old), (libc::AT_FDCWD, &new), flags);
    match moved.map_err(|error| error.source) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => match to.symlink_metadata() {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(from, to),
        },
        moved => moved,
    }
}

/// renameat2(2), of names in open folders.
pub(crate) fn rename_at(
    (from_folder, from): (libc::c_int, &CStr),
    (to_folder, to): (libc::c_int, &CStr),
    flags: libc::c_uint,
) -> Result<(), SyscallError> {
    // SAFETY: both names are C strings that live through the call.
    let moved = unsafe {
        libc::syscall(libc::SYS_renameat2, from_folder, from.as_ptr(), to_folder, to.as_ptr(), flags)
    };
    check("renameat2", moved as libc::c_int).map(|_| ())
}

/// Makes a file `len` bytes long and has the file system keep room for all of them. Unwritten bytes read as zeros.
///
/// # Errors
/// The error of fallocate(2): `ENOSPC`, `EFBIG`, `EOPNOTSUPP` on file systems that cannot.
pub fn reserve(file: &File, len: u64) -> Result<(), SyscallError> {
    fallocate("fallocate", file, 0, 0..len)
}

/// Makes the file system keep room for a part of a file, whose length and bytes stay as they are.
///
/// # Errors
/// As [`reserve`].
pub fn reserve_part(file: &File, part: Range<u64>) -> Result<(), SyscallError> {
    fallocate("fallocate(FALLOC_FL_KEEP_SIZE)", file, libc::FALLOC_FL_KEEP_SIZE, part)
}

/// Makes the file system reserve `len` bytes behind the end of a file, which stays where it is.
///
/// # Errors
/// As [`reserve`].
pub fn reserve_behind(file: &File, len: u64) -> Result<(), SyscallError> {
    let end = file.metadata().map_or(0, |metadata| metadata.len());
    reserve_part(file, end..end.saturating_add(len))
}

/// Gives the room of a part of a file back to the file system: the part then reads as zeros, and the file keeps its
/// length.
///
/// # Errors
/// The error of fallocate(2): `EOPNOTSUPP` on file systems that have no files with holes.
pub fn release(file: &File, part: Range<u64>) -> Result<(), SyscallError> {
    if part.is_empty() {
        return Ok(());
    }
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    fallocate("fallocate(FALLOC_FL_PUNCH_HOLE)", file, mode, part)
}

fn fallocate(
    call: &'static str,
    file: &File,
    mode: libc::c_int,
    part: Range<u64>,
) -> Result<(), SyscallError> {
    let number =
        |number: u64| libc::off_t::try_from(number).map_err(|_| SyscallError::from_errno(call, libc::EFBIG));
    let (from, len) = (number(part.start)?, number(part.end.saturating_sub(part.start))?);
    // SAFETY: the descriptor is open as long as `file` lives; the call touches no memory of ours.
    check(call, unsafe { libc::fallocate(file.as_raw_fd(), mode, from, len) })?;
    Ok(())
}

/// Bytes that a file takes on its disk: fewer than its length if parts of it were [released](release).
#[must_use]
pub fn room_of(metadata: &Metadata) -> u64 {
    // st_blocks counts in units of 512 bytes on every file system (stat(2)).
    metadata.blocks().saturating_mul(512)
}

/// Opens a regular file. A symbolic link at the end of the path is not followed, and a pipe does not make the caller
/// wait.
///
/// # Errors
/// Those of open(2): `ELOOP` for a symbolic link; [`io::ErrorKind::InvalidInput`] for other things than regular files.
pub fn open_regular(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let file = options.clone().custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a regular file")),
    }
}

/// Opens a directory. A symbolic link at the end of the path is not followed.
///
/// # Errors
/// Those of open(2): `ENOTDIR` or `ELOOP` for other things than directories.
pub fn open_folder(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// Opens a file, pipe or device without waiting for the other end of a pipe. Symbolic links are followed. The caller
/// checks the kind of the open file: its path may lead elsewhere by then.
///
/// # Errors
/// Those of open(2): `ENXIO` for a pipe that has no reader and is opened to be written to.
pub fn open_at_once(path: &Path, options: &OpenOptions) -> io::Result<File> {
    options.clone().custom_flags(libc::O_NONBLOCK).open(path)
}

/// Time for all that comes through a pipe in place of a file: of a shell's `<(...)` it is there at once.
const PIPE_PATIENCE: Duration = Duration::from_secs(5);

/// Reads a file, but no more than a byte beyond `len_max`, so that the caller sees that it is longer. A pipe in place
/// of a file may have no writer: after 5 s in all it is an error.
///
/// # Errors
/// Those of open(2) and read(2); [`io::ErrorKind::TimedOut`] for such a pipe.
pub fn read_at_most(path: &Path, len_max: u64) -> io::Result<Vec<u8>> {
    let file = open_at_once(path, OpenOptions::new().read(true))?;
    read_file_at_most(&file, len_max)
}

/// Does as [`read_at_most`] with a file that [`open_at_once`] opened.
///
/// # Errors
/// Those of [`read_at_most`].
pub fn read_file_at_most(file: &File, len_max: u64) -> io::Result<Vec<u8>> {
    read_within(file, len_max, PIPE_PATIENCE)
}

fn read_within(file: &File, len_max: u64, patience: Duration) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = file.take(len_max.saturating_add(1));
    if file.metadata()?.is_file() {
        rest.read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let end = Instant::now() + patience;
    let mut poller = Poller::new();
    poller.add(file.as_fd());
    loop {
        let ready = poller.wait(end.saturating_duration_since(Instant::now())).map_err(io::Error::other)?;
        match rest.read_to_end(&mut bytes) {
            // At a pipe without a writer this is not an end: one may come yet.
            Ok(_) if ready > 0 => return Ok(bytes),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ if Instant::now() >= end => {
                let why = "it is a pipe into which nobody writes: name a file";
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            _ => {}
        }
    }
}

/// Makes a named pipe that its owner may read and write. A test that started `mkfifo(1)` instead would have, for a
/// moment, a second process with the locks of all files that other tests hold.
///
/// # Errors
/// Those of mkfifo(3), and a path with a zero byte.
pub fn make_pipe(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `name` ends with a zero byte and outlives the call, which keeps no pointer.
    match unsafe { libc::mkfifo(name.as_ptr(), 0o600) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A regular file that is read in pieces. Reading *past the cache* takes cached pages and reads the rest from the
/// disk straight into the caller's memory, so that the pages of other programs stay in the cache.
#[derive(Debug)]
pub struct PieceFile {
    file: File,
    /// The file without the page cache; `None` if that was not requested or the file system cannot do it.
    direct: Option<File>,
}

/// The alignment of addresses, offsets and lengths where a disk writes straight into memory.
pub const DIRECT_ALIGN: usize = 4096;

impl PieceFile {
    /// Opens a file as [`open_regular`] does.
    ///
    /// # Errors
    /// Those of [`open_regular`].
    pub fn open(path: &Path, is_past_cache: bool) -> io::Result<PieceFile> {
        let mut options = OpenOptions::new();
        options.read(true);
        let file = open_regular(path, &options)?;
        let direct =
            if is_past_cache { same_but_direct(path, &file, OpenOptions::new().read(true)) } else { None };
        Ok(PieceFile { file, direct })
    }

    /// The file, for all else.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fills `buffer` from `offset` on. Past the cache only where both are multiples of [`DIRECT_ALIGN`], and the
    /// buffer's address too.
    ///
    /// # Errors
    /// Those of pread(2); [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let is_aligned = |number: usize| number.is_multiple_of(DIRECT_ALIGN);
        let fits =
            is_aligned(buffer.len()) && is_aligned(buffer.as_ptr().addr()) && is_aligned(offset as usize);
        let Some(direct) = self.direct.as_ref().filter(|_| fits) else {
            return self.file.read_exact_at(buffer, offset);
        };
        let cached = read_cached(&self.file, buffer, offset).unwrap_or(0);
        let at = cached - cached % DIRECT_ALIGN;
        if cached == buffer.len() {
            return Ok(());
        }
        // A disk with larger blocks than ours refuses: then it is read like any other file.
        direct
            .read_exact_at(&mut buffer[at..], offset + at as u64)
            .or_else(|_| self.file.read_exact_at(&mut buffer[at..], offset + at as u64))
    }
}

/// Opens a file that is open once more, for writing past the page cache (open(2) `O_DIRECT`): address, offset and
/// length of each write are multiples of [`DIRECT_ALIGN`]. `None` where the file system cannot, or the name is another
/// file's by now. A disk with larger blocks refuses the first write (`EINVAL`).
pub fn open_direct(path: &Path, file: &File) -> Option<File> {
    same_but_direct(path, file, OpenOptions::new().write(true))
}

/// The file that is open, opened once more without the page cache.
fn same_but_direct(path: &Path, file: &File, options: &mut OpenOptions) -> Option<File> {
    let flags = libc::O_DIRECT | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let direct = options.custom_flags(flags).open(path).ok()?;
    let identity = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
    // The name may be another file's by now.
    (identity(&direct)? == identity(file)?).then_some(direct)
}

/// Reads cached pages without waiting for the disk. Returns the number of bytes. Minimum kernel: 4.14.
fn read_cached(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize, SyscallError> {
    const CALL: &str = "preadv2(RWF_NOWAIT)";
    let offset = libc::off_t::try_from(offset).map_err(|_| SyscallError::from_errno(CALL, libc::EINVAL))?;
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: `part` describes `buffer`, which is ours alone and lives through the call; the kernel writes at most its
    // length.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, offset, libc::RWF_NOWAIT) };
    check_len(CALL, read)
}

/// Makes the disk serve this thread when no other needs it (ioprio_set(2), the idle class). Schedulers of the kernel
/// that know no classes take no notice.
///
/// # Errors
/// The error of ioprio_set(2).
pub fn set_idle_io_priority() -> Result<(), SyscallError> {
    const CALL: &str = "ioprio_set";
    const WHO_PROCESS: libc::c_long = 1;
    const CLASS_IDLE: libc::c_long = 3 << 13;
    // SAFETY: the call takes numbers; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0 as libc::c_long, CLASS_IDLE) };
    check(CALL, result as libc::c_int).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_pipe_without_a_writer_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        make_pipe(&path).unwrap();
        let open = || open_at_once(&path, OpenOptions::new().read(true)).unwrap();
        let error = read_within(&open(), 10, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let reader = open();
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(b"text").unwrap();
        assert!(read_within(&reader, 10, Duration::ZERO).is_err(), "a writer that stays is not waited for");
        writer.write_all(b"text").unwrap();
        drop(writer);
        assert_eq!(read_within(&reader, 10, PIPE_PATIENCE).unwrap(), b"text");
        assert_eq!(read_at_most(Path::new("/dev/zero"), 10).unwrap().len(), 11);
        assert_eq!(read_at_most(Path::new("/dev/null"), 10).unwrap(), b"");
        std::fs::write(folder.path().join("file"), "0123456789abcdef").unwrap();
        assert_eq!(read_at_most(&folder.path().join("file"), 10).unwrap(), b"0123456789a");
    }

    #[test]
    fn pieces_read_past_the_cache_are_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..5 * DIRECT_ALIGN as u32).flat_map(|number| number.to_le_bytes()).collect();
        std::fs::write(&path, &bytes).unwrap();
        let mut memory = vec![0; bytes.len() + DIRECT_ALIGN];
        let from = memory.as_ptr().align_offset(DIRECT_ALIGN);
        for is_past_cache in [false, true] {
            let file = PieceFile::open(&path, is_past_cache).unwrap();
            // The first page is in the cache, the others are not, as far as the file system drops them.
            file.file().sync_all().unwrap();
            // SAFETY: the descriptor is open; the call touches no memory of ours.
            unsafe { libc::posix_fadvise(file.file().as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            file.file().read_exact_at(&mut memory[..1], 0).unwrap();
            for (offset, len) in
                [(0, bytes.len()), (DIRECT_ALIGN, 2 * DIRECT_ALIGN), (7, 9000), (4 * DIRECT_ALIGN, 4096)]
            {
                let piece = &mut memory[from..from + len];
                piece.fill(0);
                file.read_exact_at(piece, offset as u64).unwrap();
                assert!(*piece == bytes[offset..offset + len], "{offset} {len} {is_past_cache}");
            }
            let end = &mut memory[from..from + DIRECT_ALIGN];
            assert!(file.read_exact_at(end, bytes.len() as u64).is_err());
        }
    }

    #[test]
    fn a_released_part_takes_no_room_and_is_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create_new(folder.path().join("file")).unwrap();
        reserve(&file, 64 * 4096).unwrap();
        file.write_all_at(&[1; 64 * 4096], 0).unwrap();
        file.sync_all().unwrap();
        let before = room_of(&file.metadata().unwrap());
        if let Err(error) = release(&file, 4096..63 * 4096) {
            assert_eq!(error.errno(), libc::EOPNOTSUPP);
            eprintln!("skipped: a_released_part_takes_no_room_and_is_zeros: the file system has no holes");
            return;
        }
        let about = file.metadata().unwrap();
        assert_eq!((about.len(), before - room_of(&about)), (64 * 4096, 62 * 4096));
        let bytes = std::fs::read(folder.path().join("file")).unwrap();
        assert!(bytes[..4096].iter().chain(&bytes[63 * 4096..]).all(|byte| *byte == 1));
        assert!(bytes[4096..63 * 4096].iter().all(|byte| *byte == 0));
        release(&file, 0..0).unwrap();
        reserve_part(&file, 4096..3 * 4096).unwrap();
        let again = file.metadata().unwrap();
        assert_eq!((again.len(), room_of(&again) - room_of(&about)), (64 * 4096, 2 * 4096));
    }

    #[test]
    fn a_name_that_is_taken_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [old, taken, link, free] = ["old", "taken", "link", "free"].map(|name| folder.path().join(name));
        fs::write(&old, "ours").unwrap();
        fs::write(&taken, "theirs").unwrap();
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        for name in [&taken, &link] {
            assert_eq!(rename_new(&old, name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(fs::read(&taken).unwrap(), b"theirs");
        rename_new(&old, &free).unwrap();
        assert_eq!((fs::read(&free).unwrap(), old.exists()), (b"ours".to_vec(), false));
        assert_eq!(rename_new(&old, &free).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_thread_may_be_the_last_that_the_disk_serves() {
        std::thread::spawn(|| set_idle_io_priority().unwrap()).join().unwrap();
    }

    #[test]
    fn the_root_has_room_and_nothing_has_none() {
        let space = super::space(Path::new("/")).unwrap();
        assert!(space.total > 0 && space.free <= space.total, "{space:?}");
        assert_eq!(super::space(Path::new("/no such path")).unwrap_err().errno(), libc::ENOENT);
    }
}
