//! The socket that clients connect to: made where no other user can touch it, and accepting as long as descriptors
//! last.
//!
//! ```text
//! parent folder --make_private--> bind, mode, owner --rename--> the name        no link is followed, nothing half made is seen
//! accept: a connection | few descriptors left: closed at once | none: by the spare one, else the socket rests
//! ```

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tapline_sys::peer::{self, Peer};
use tapline_sys::{Folder, PrivateFolder, SyscallError, open_files, privilege};
use tapline_tap_client::Channel;
use tapline_tap_client::protocol::Reply;

use crate::rules::group_of_name;
use crate::{Error, Rules};

/// Descriptors that no connection takes: for files of users and groups, and for buffers of readers that are there.
const RESERVED: u64 = 16;
/// Descriptors of `RESERVED` that buffers may not take either.
const RESERVED_OF_BUFFERS: u64 = 8;
/// Descriptors that a reader takes of each worker while it comes: a buffer, an index, the ends of its bell, one that is
/// opened to try it.
const OF_A_READER: u64 = 5;
/// The pause of accepting after the last descriptor was gone.
const REST: Duration = Duration::from_millis(500);

/// The socket of a daemon.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// The user who started the daemon.
    owner: u32,
    /// A descriptor that is closed for a moment to accept a connection, and refuse it, when no other is left.
    spare: Option<File>,
    rests_until: Option<Instant>,
    descriptors_max: u64,
}

/// The result of accepting.
pub(crate) enum Accepted {
    /// A connection.
    Connected(UnixStream, Peer),
    /// A connection of this user that was closed again, and the reason.
    Refused(u32, String),
    /// No client, or one that was gone at once.
    Nobody,
}

impl Socket {
    /// Takes the socket that the rules name, from a daemon that is no more if need be. It belongs to `owner`, the user
    /// who started the daemon (without one: the user of this process), who has every right, as root has. To be called
    /// with all rights: the serving user need not be able to write to the folder. It stays behind then, and the next
    /// daemon takes it. The limit of open descriptors is raised as far as it may be.
    ///
    /// # Errors
    /// [`Error::SocketTaken`], [`Error::File`], [`Error::Senseless`].
    pub fn bind(rules: &Rules, owner: Option<u32>) -> Result<Socket, Error> {
        let path = rules.socket.as_path();
        let file = |source: io::Error| Error::File { path: path.to_owned(), source };
        let senseless = |what| Error::Senseless { path: path.to_owned(), what };
        let gid = match &rules.group {
            None => None,
            Some(name) => match group_of_name(name).or_else(|| name.parse().ok()) {
                Some(gid) => Some(gid),
                None => return Err(senseless(format!("there is no group {name:?}"))),
            },
        };
        let mode = rules.socket_mode().map_err(senseless)?;
        // Clients come by this name, whose length has a limit.
        SocketAddr::from_pathname(path).map_err(file)?;
        let name = path.file_name().ok_or_else(|| senseless("it names no file".to_owned()))?;
        let parent = path.parent().unwrap_or(Path::new(""));
        // As /run/tapline, which a new start of the machine has taken away; not what a slip of the pen names.
        if !parent.as_os_str().is_empty() && !parent.exists() {
            fs::create_dir(parent).map_err(file)?;
        }
        let system = |error: SyscallError| file(error.source);
        let folder = Folder::open(parent).map_err(system)?;
        let private = folder.make_private().map_err(system)?;
        let listener = UnixListener::bind(private.path_of(name)).map_err(file)?;
        listener.set_nonblocking(true).map_err(file)?;
        let published =
            private.own(name, mode, owner, gid).map_err(system).and_then(|()| publish(&private, path));
        if let Err(error) = published {
            let _ = private.remove(name);
            return Err(error);
        }
        let descriptors_max = open_files::raise_limit().unwrap_or(u64::MAX);
        let owner = owner.unwrap_or_else(privilege::user);
        Ok(Socket {
            listener,
            path: path.to_owned(),
            owner,
            spare: spare(),
            rests_until: None,
            descriptors_max,
        })
    }

    /// The user who started the daemon.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    /// Whether connections are accepted at the moment, so that waiting for one makes sense.
    pub(crate) fn listens(&mut self) -> bool {
        if self.rests_until.is_some_and(|until| until > Instant::now()) {
            return false;
        }
        if self.spare.is_none() {
            self.spare = spare();
        }
        self.rests_until = None;
        true
    }

    /// The longest pause of accepting from now on.
    pub(crate) fn rest(&self) -> Option<Duration> {
        Some(self.rests_until?.saturating_duration_since(Instant::now()))
    }

    /// The next connection.
    pub(crate) fn accept(&mut self) -> Accepted {
        match self.listener.accept() {
            Ok((stream, _)) if stream.as_raw_fd() as u64 + RESERVED < self.descriptors_max => {
                let peer = peer::of(stream.as_fd());
                peer.map_or(Accepted::Nobody, |peer| Accepted::Connected(stream, peer))
            }
            Ok((stream, _)) => turn_away(stream),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Accepted::Nobody
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Accepted::Nobody,
            // No descriptor, or no memory for one: asking again at once would only take the processor.
            Err(_) => {
                let accepted = self.spare.take().and_then(|_closed| self.listener.accept().ok());
                let answer = accepted.map_or(Accepted::Nobody, |(stream, _)| turn_away(stream));
                self.spare = spare();
                if self.spare.is_none() || matches!(answer, Accepted::Nobody) {
                    self.rests_until = Some(Instant::now() + REST);
                }
                answer
            }
        }
    }

    /// Whether there are descriptors for the buffers of one more reader.
    ///
    /// # Errors
    /// That there are none, in words.
    pub(crate) fn check_room(&self, workers: usize) -> Result<(), String> {
        let needed = OF_A_READER * workers as u64 + RESERVED_OF_BUFFERS;
        match open_files::next_number(self.listener.as_fd()) {
            Ok(next) if next.saturating_add(needed) <= self.descriptors_max => Ok(()),
            _ => Err(no_descriptors()),
        }
    }

    /// Removes the name: no new client can connect.
    pub(crate) fn close(self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn spare() -> Option<File> {
    File::open("/proc/self/stat").ok()
}

fn no_descriptors() -> String {
    "the daemon has no descriptors left for more: come again later, or have its limit raised (ulimit -Hn, LimitNOFILE=)".to_owned()
}

/// Says why, as far as that is heard, and closes.
fn turn_away(stream: UnixStream) -> Accepted {
    let Ok(peer) = peer::of(stream.as_fd()) else { return Accepted::Nobody };
    if stream.set_nonblocking(true).is_ok() {
        let _ = Channel::new(stream, false).send(&Reply::Error(no_descriptors()), &[]);
    }
    Accepted::Refused(peer.uid, format!("no descriptors are left for a connection of user {}", peer.uid))
}

/// Moves a socket to its name, after it was made in private. A socket that a daemon left behind is replaced.
fn publish(private: &PrivateFolder<'_>, path: &Path) -> Result<(), Error> {
    let file = |source: io::Error| Error::File { path: path.to_owned(), source };
    let name = path.file_name().unwrap_or_default();
    match private.publish(name, false) {
        // Where file systems cannot refuse to replace (EINVAL), looking before must do.
        Err(error)
            if matches!(error.source.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::InvalidInput) =>
        {
            match fs::symlink_metadata(path) {
                Ok(about) if !about.file_type().is_socket() => {
                    let what = "it exists and is not a socket: name another path, or remove it".to_owned();
                    return Err(Error::Senseless { path: path.to_owned(), what });
                }
                Ok(_) if is_alive(path) => return Err(Error::SocketTaken { path: path.to_owned() }),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file(error)),
                _ => private.publish(name, true),
            }
        }
        other => other,
    }
    .map_err(|error| file(error.source))
}

/// Whether a process listens there.
fn is_alive(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// A user who may write to the folder puts links in the socket's place as fast as that goes.
    #[test]
    fn a_link_in_the_sockets_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("socket"), folder.path().join("victim"));
        fs::write(&victim, "secret").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        let (place, ends) = (path.clone(), AtomicBool::new(false));
        let rules = Rules { socket: path.clone(), mode: "0666".to_owned(), ..Rules::default() };
        let owner = privilege::is_root().then_some(65_534);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    if fs::symlink_metadata(&place).is_ok_and(|about| about.file_type().is_socket()) {
                        let _ = fs::remove_file(&place);
                        let _ = symlink(&victim, &place);
                    }
                }
            });
            for _ in 0..2000 {
                drop(Socket::bind(&rules, owner));
                let about = fs::metadata(&victim).unwrap();
                let is_as_it_was = about.mode() & 0o777 == 0o600 && about.uid() == privilege::user();
                if !is_as_it_was {
                    ends.store(true, Ordering::Relaxed);
                    panic!("a link was followed: mode {:o}, user {}", about.mode(), about.uid());
                }
                let _ = fs::remove_file(&path);
            }
            ends.store(true, Ordering::Relaxed);
        });
        let left = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name != "victim" && name != "socket").collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_socket_that_was_left_behind_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let rules = Rules { socket: path.clone(), mode: "0640".to_owned(), ..Rules::default() };
        drop(Socket::bind(&rules, None).unwrap());
        let socket = Socket::bind(&rules, None).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert!(matches!(Socket::bind(&rules, None), Err(Error::SocketTaken { .. })));
        socket.close();
        assert!(!path.exists());
        fs::write(&path, "a file").unwrap();
        assert!(matches!(Socket::bind(&rules, None), Err(Error::Senseless { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"a file");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
