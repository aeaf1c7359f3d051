//! The daemon's log: a bounded queue before the stream, so that a log that is not read stops nothing.
//!
//! ```text
//! any thread --write--> queue --writing thread--> stream
//!                 \ full: counted; the count is told in the place of what was left out
//! ```

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::journal::{Journal, JournalEntry};

/// Bytes of texts that wait for the stream.
const QUEUE_LEN_MAX: usize = 256 << 10;

/// A log that any thread may write to, and that keeps none waiting.
#[derive(Clone)]
pub struct Log {
    queue: Arc<Queue>,
    journal: Option<Arc<Journal>>,
}

struct Queue {
    prefix: &'static str,
    state: Mutex<QueuedTexts>,
    changed: Condvar,
}

#[derive(Default)]
struct QueuedTexts {
    texts: VecDeque<String>,
    /// Bytes of `texts`.
    len: usize,
    /// Texts that found no room since the last one that did.
    left_out: u64,
    /// A text has left the queue and not reached the stream yet.
    is_writing: bool,
}

impl Log {
    /// Writes to `stream` in a thread of its own; [`line`](Self::line) begins each line with `prefix`.
    ///
    /// # Errors
    /// Without a thread.
    pub fn start(stream: impl Write + Send + 'static, prefix: &'static str) -> io::Result<Log> {
        let queue = Arc::new(Queue { prefix, state: Mutex::default(), changed: Condvar::new() });
        let of_thread = Arc::clone(&queue);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || of_thread.write_to(stream))?;
        let journal = Journal::of_standard_error().map(Arc::new);
        Ok(Log { queue, journal })
    }

    /// Adds a line.
    pub fn line(&self, line: &str) {
        self.text(format!("{}{line}\n", self.queue.prefix));
    }

    /// Adds an entry: with its fields to the journal if standard error goes there, else as a line.
    pub fn entry(&self, entry: &JournalEntry) {
        if !self.journal.as_ref().is_some_and(|journal| journal.takes(entry)) {
            self.line(&entry.message);
        }
    }

    /// Adds whole lines as they are.
    pub fn text(&self, text: String) {
        let mut state = self.queue.lock();
        if state.len + text.len() > QUEUE_LEN_MAX {
            state.left_out += 1;
            return;
        }
        state.tell_left_out(self.queue.prefix);
        state.push(text);
        self.queue.changed.notify_all();
    }

    /// Waits until all is written, for at most `wait`. Returns whether it is.
    pub fn flush(&self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        let mut state = self.queue.lock();
        loop {
            if state.texts.is_empty() && state.left_out == 0 && !state.is_writing {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.queue.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueuedTexts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, mut stream: impl Write) {
        loop {
            let text = self.next();
            // A log that cannot be written is nothing that could be told anywhere.
            let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    fn next(&self) -> String {
        let mut state = self.lock();
        loop {
            if state.texts.is_empty() {
                state.tell_left_out(self.prefix);
            }
            if let Some(text) = state.texts.pop_front() {
                state.len -= text.len();
                state.is_writing = true;
                return text;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl QueuedTexts {
    fn push(&mut self, text: String) {
        self.len += text.len();
        self.texts.push_back(text);
    }

    fn tell_left_out(&mut self, prefix: &str) {
        let count = std::mem::take(&mut self.left_out);
        if count > 0 {
            self.push(format!("{prefix}{count} texts of this log were left out: it was not read in time\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn an_unread_log_keeps_no_thread_waiting() {
        let (reader, writer) = io::pipe().unwrap();
        let log = Log::start(writer, "test: ").unwrap();
        let lines = 100_000;
        (0..lines).for_each(|number| log.line(&format!("line {number}")));
        assert!(!log.flush(Duration::from_millis(1)), "the pipe is full");
        let reading = std::thread::spawn(move || {
            BufReader::new(reader)
                .lines()
                .map(Result::unwrap)
                .take_while(|line| line != "test: end")
                .collect::<Vec<_>>()
        });
        assert!(log.flush(Duration::from_secs(60)));
        log.line("end");
        // Every line is there or counted, in its order. The writing thread may begin late and make room while lines
        // still come: counts then stand in several places.
        let (mut read, mut left_out) = (0, 0);
        for line in reading.join().unwrap() {
            let text = line.strip_prefix("test: ").expect("a whole line");
            let number = match text.strip_prefix("line ") {
                Some(number) => number.parse::<u64>().unwrap(),
                None => {
                    left_out += text.split(' ').next().unwrap().parse::<u64>().unwrap();
                    continue;
                }
            };
            assert_eq!(number, read + left_out, "a line is neither there nor counted");
            read += 1;
        }
        assert_eq!(read + left_out, lines);
        assert!(read > 1000 && left_out > 0, "{read} lines, {left_out} left out");
    }

    #[test]
    fn the_count_stands_where_texts_are_missing() {
        let mut state = QueuedTexts { left_out: 3, ..QueuedTexts::default() };
        state.tell_left_out("");
        state.push("later\n".to_owned());
        assert!(state.texts[0].starts_with("3 texts") && state.texts[1] == "later\n" && state.left_out == 0);
    }
}
