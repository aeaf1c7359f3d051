//! Bodies of answers: whole, in parts as they come, or a file in parts, which may break off.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

/// The body of an answer.
pub(crate) enum Answer {
    /// All of it.
    Whole(Option<Bytes>),
    /// Parts, until the sender ends.
    Parts(Receiver<Bytes>),
    /// A file that is whole if the flag is true when the sender has ended. Otherwise the connection ends without the
    /// end of the body, so that the browser shows a download that failed.
    File(Receiver<Bytes>, Arc<AtomicBool>),
}

/// A body that has no end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BrokenOff;

impl fmt::Display for BrokenOff {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("the file broke off")
    }
}

impl std::error::Error for BrokenOff {}

impl Body for Answer {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match self.get_mut() {
            Answer::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Answer::Parts(parts) => {
                parts.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(part))))
            }
            Answer::File(parts, is_whole) => parts.poll_recv(context).map(|part| match part {
                Some(part) => Some(Ok(Frame::data(part))),
                None => (!is_whole.load(Acquire)).then_some(Err(BrokenOff)),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Answer::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Answer::Parts(_) | Answer::File(..) => SizeHint::default(),
        }
    }
}
