//! Children: this program again, with memory for notes that outlives it.

use std::env;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering::SeqCst;

use tapline_ring::{Reader, ReaderParts};
use tapline_sys::{Memfd, SharedWords, passing, process};

pub(crate) const KILL: i32 = 9;
pub(crate) const CONT: i32 = 18;
pub(crate) const STOP: i32 = 19;

/// A child, its notes, and the socket from which it received its parts.
pub(crate) struct Other {
    pub(crate) child: Child,
    pub(crate) notes: SharedWords,
    pub(crate) socket: UnixStream,
}

impl Other {
    pub(crate) fn start(what: &str, number: u64) -> Other {
        let (socket, theirs) = UnixStream::pair().expect("a socket");
        let child = Command::new(env::current_exe().expect("our path"))
            .args([what, &number.to_string()])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .expect("a child");
        let memfd = Memfd::create(c"notes", 4096).expect("memory");
        let notes = memfd.map().expect("a mapping");
        passing::send(socket.as_fd(), b"n", &[memfd.as_fd()]).expect("passed on");
        Other { child, notes, socket }
    }

    pub(crate) fn note(&self, word: usize) -> u64 {
        self.notes[word].load(SeqCst)
    }

    pub(crate) fn signal(&self, signal: i32) {
        process::signal(self.child.id(), signal).expect("a child that is not waited for");
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("a child")
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Descriptors sent to a child: its notes, and a reader's parts.
pub(crate) fn received(socket: &UnixStream, count: usize) -> Vec<OwnedFd> {
    let (_, found) = passing::receive(socket.as_fd(), &mut [0]).expect("something sent");
    assert_eq!(found.len(), count);
    found
}

pub(crate) fn our_socket() -> UnixStream {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    UnixStream::from(stdin)
}

pub(crate) fn our_notes(socket: &UnixStream) -> SharedWords {
    Memfd::from_descriptor(received(socket, 1).remove(0)).map().expect("a mapping")
}

pub(crate) fn open(socket: &UnixStream) -> Reader {
    let [buffer, index, bell] = received(socket, 3).try_into().expect("three");
    Reader::open(ReaderParts { buffer, index, bell }).expect("a reader")
}

pub(crate) fn send(socket: &UnixStream, parts: &ReaderParts) {
    let descriptors = [parts.buffer.as_fd(), parts.index.as_fd(), parts.bell.as_fd()];
    passing::send(socket.as_fd(), b"r", &descriptors).expect("passed on");
}
