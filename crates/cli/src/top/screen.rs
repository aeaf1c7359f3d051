//! The report in place on a terminal: the other screen of the terminal, one frame a refresh, the keys q and Ctrl-C.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tapline_sys::{KeyInput, Poller, TerminalSize};

use super::reading::Report;
use super::table;

/// The size assumed for a terminal that does not report its size.
const SIZE: TerminalSize = TerminalSize { columns: 80, lines: 24 };
/// Signals and keys are looked for this often: a signal may go to another thread, and end no wait.
const GLANCE: Duration = Duration::from_millis(100);
/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The terminal while it is ours; as it was when dropped.
pub(super) struct Screen {
    keys: KeyInput,
    poller: Poller,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn open() -> Result<Screen> {
        let keys = KeyInput::new(io::stdin().as_fd())?;
        let screen = Screen { keys, poller: Poller::new() };
        write(ENTER)?;
        Ok(screen)
    }

    /// Draws a report over what was there. What has no room below is left out.
    pub(super) fn show(&mut self, report: &Report) -> Result<()> {
        let size = TerminalSize::of(io::stdout().as_fd()).unwrap_or(SIZE);
        write(&frame(&table::text(report, usize::from(size.columns)), usize::from(size.lines)))
    }

    /// Waits for the next refresh; `false` if it is time to end.
    pub(super) fn wait(&mut self, time: Duration, is_over: &AtomicBool) -> Result<bool> {
        let start = Instant::now();
        while !is_over.load(Ordering::Relaxed) {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(true);
            }
            self.poller.clear();
            self.poller.add(self.keys.as_fd());
            if self.poller.wait(left.min(GLANCE))? == 0 {
                continue;
            }
            match self.keys.key()? {
                // The terminal is gone, or the user wants to go.
                None | Some(b'q' | b'Q') => return Ok(false),
                Some(_) => {}
            }
        }
        Ok(false)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that cannot be written to has no reader.
        let _ = write(LEAVE);
    }
}

/// Each line over the last one, and the rest wiped, so that nothing flickers.
fn frame(text: &str, lines_max: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let shown = if lines.len() > lines_max { lines_max.saturating_sub(1) } else { lines.len() };
    let mut frame = String::from("\x1b[H");
    for line in &lines[..shown] {
        frame += line;
        frame += "\x1b[K\r\n";
    }
    if shown < lines.len() {
        frame += &format!("{} more lines\x1b[K", lines.len() - shown);
    } else if shown == lines_max {
        // The last line fills the screen: no line feed behind it, which would scroll.
        frame.truncate(frame.len() - 2);
    }
    frame + "\x1b[J"
}

fn write(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_screen() {
        assert_eq!(frame("a\nb\n", 24), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J");
        assert_eq!(frame("a\nb\n", 2), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
        assert_eq!(frame("a\nb\nc\n", 2), "\x1b[Ha\x1b[K\r\n2 more lines\x1b[K\x1b[J");
    }
}
