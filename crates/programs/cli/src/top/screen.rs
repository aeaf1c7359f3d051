//! Frames in place on a terminal: the other screen of the terminal, and its keys.
//!
//! ```text
//! open:   keys at once, the other screen
//! Ctrl-Z: both as they were; the process stops; SIGCONT: open again
//! drop:   both as they were
//! ```

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use signal_hook::consts::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;
use tapline_sys::{KeyInput, Poller, TerminalSize};

use super::draw::{Line, Look, Room};
use super::state::{Effect, Key};
use super::watching::Watch;

/// The size assumed for a terminal that does not report its size.
const SIZE: TerminalSize = TerminalSize { columns: 80, lines: 24 };
/// Signals, keys and the meter are looked for this often.
const GLANCE: Duration = Duration::from_millis(100);
/// Two frames are apart by so much, but for those that a key asks for.
const FRAME: Duration = Duration::from_millis(250);
/// Longest wait for the rest of a key's escape sequence.
const KEY_REST: Duration = Duration::from_millis(50);
/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The terminal while it is ours; as it was when dropped.
pub(super) struct Screen {
    /// `None` while the process is stopped.
    keys: Option<KeyInput>,
    /// Set by Ctrl-Z.
    is_to_stop: Arc<AtomicBool>,
    poller: Poller,
    has_colour: bool,
    is_ascii: bool,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn open(is_ascii: bool) -> Result<Screen> {
        let has_colour = !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let is_to_stop = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGTSTP, Arc::clone(&is_to_stop))?;
        let mut screen = Screen { keys: None, is_to_stop, poller: Poller::new(), has_colour, is_ascii };
        screen.take()?;
        Ok(screen)
    }

    fn take(&mut self) -> Result<()> {
        self.keys = Some(KeyInput::new(io::stdin().as_fd())?);
        write(ENTER)
    }

    /// Restores the terminal, and stops the process until SIGCONT.
    fn stop(&mut self) -> Result<()> {
        write(LEAVE)?;
        self.keys = None;
        emulate_default_handler(SIGTSTP)?;
        self.take()
    }

    /// Shows frames until the user, a signal or `is_wanted` ends it.
    pub(super) fn run(
        &mut self,
        watch: &mut Watch,
        is_over: &AtomicBool,
        is_wanted: impl Fn(&Watch) -> bool,
    ) -> Result<()> {
        let (mut is_stale, mut drawn, mut last_size) = (true, None::<Instant>, size());
        while !is_over.load(Ordering::Relaxed) && is_wanted(watch) {
            if self.is_to_stop.swap(false, Ordering::Relaxed) {
                self.stop()?;
                (is_stale, drawn) = (true, None);
            }
            let now = size();
            is_stale |= watch.read() || now != last_size;
            last_size = now;
            if is_stale && drawn.is_none_or(|drawn| drawn.elapsed() >= FRAME) {
                self.show(watch, now)?;
                (is_stale, drawn) = (false, Some(Instant::now()));
            }
            match self.key()? {
                None => return Ok(()),
                Some(None) => {}
                Some(Some(key)) => {
                    if watch.press(key) == Effect::Quit {
                        return Ok(());
                    }
                    (is_stale, drawn) = (true, None);
                }
            }
        }
        Ok(())
    }

    fn show(&self, watch: &mut Watch, size: TerminalSize) -> Result<()> {
        let (columns, lines) = (usize::from(size.columns), usize::from(size.lines));
        let room = Room { columns, lines, is_ascii: self.is_ascii };
        write(&frame(&watch.frame(room), lines, self.has_colour))
    }

    /// Waits for a key. `None` if the terminal is gone; `Some(None)` if none was pressed, or one without a meaning.
    #[expect(clippy::option_option, reason = "the end of a terminal is not a key")]
    fn key(&mut self) -> Result<Option<Option<Key>>> {
        if !self.is_there(GLANCE)? {
            return Ok(Some(None));
        }
        let Some(first) = self.letter()? else { return Ok(None) };
        Ok(Some(match first {
            b'\r' | b'\n' => Some(Key::Enter),
            0x7f | 0x08 => Some(Key::Backspace),
            0x1b => self.sequence()?,
            letter @ b' '..=b'~' => Some(Key::Letter(char::from(letter))),
            _ => None,
        }))
    }

    /// The key of an escape sequence (ECMA-48, 5.4), or Escape itself.
    fn sequence(&mut self) -> Result<Option<Key>> {
        if !self.is_there(KEY_REST)? {
            return Ok(Some(Key::Escape));
        }
        if !matches!(self.letter()?, Some(b'[' | b'O')) {
            return Ok(None);
        }
        let mut last = None;
        while self.is_there(KEY_REST)? {
            last = self.letter()?;
            if last.is_none_or(|letter| (0x40..=0x7e).contains(&letter)) {
                break;
            }
        }
        Ok(match last {
            Some(b'A') => Some(Key::Up),
            Some(b'B') => Some(Key::Down),
            Some(b'C') => Some(Key::Right),
            Some(b'D') => Some(Key::Left),
            _ => None,
        })
    }

    fn letter(&self) -> Result<Option<u8>> {
        Ok(self.keys.as_ref().map(KeyInput::key).transpose()?.flatten())
    }

    fn is_there(&mut self, time: Duration) -> Result<bool> {
        self.poller.clear();
        self.keys.iter().for_each(|keys| self.poller.add(keys.as_fd()));
        Ok(self.poller.wait(time)? > 0)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that cannot be written to has no reader.
        let _ = write(LEAVE);
    }
}

fn size() -> TerminalSize {
    TerminalSize::of(io::stdout().as_fd()).unwrap_or(SIZE)
}

/// Whether the locale has only the letters of ASCII, by the first of the variables that says something (POSIX, 8.2).
pub(super) fn is_ascii_locale() -> bool {
    let named = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let locale = named.unwrap_or_default().to_ascii_lowercase();
    !(locale.contains("utf-8") || locale.contains("utf8"))
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// Each line over the last one, and the rest wiped, so that nothing flickers.
fn frame(lines: &[Line], lines_max: usize, has_colour: bool) -> String {
    let lines = &lines[..lines.len().min(lines_max)];
    let mut frame = String::from("\x1b[H");
    for (at, line) in lines.iter().enumerate() {
        let look = match line.look {
            Look::Plain => "",
            Look::Head => "\x1b[1m",
            Look::Cursor => "\x1b[7m",
            Look::Faint if has_colour => "\x1b[2m",
            Look::Bad if has_colour => "\x1b[31m",
            Look::Faint => "",
            Look::Bad => "\x1b[1m",
        };
        frame += look;
        frame += &line.text;
        frame += if look.is_empty() { "\x1b[K" } else { "\x1b[m\x1b[K" };
        // The last line that fills the screen has no line feed behind it, which would scroll.
        if at + 1 < lines_max {
            frame += "\r\n";
        }
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

    fn plain(text: &str) -> Line {
        Line::plain(text)
    }

    #[test]
    fn a_frame_fits_the_screen() {
        let two = [plain("a"), plain("b")];
        assert_eq!(frame(&two, 24, true), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J");
        assert_eq!(frame(&two, 2, true), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
        assert_eq!(frame(&[plain("a"), plain("b"), plain("c")], 2, true), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
    }

    #[test]
    fn without_colour_losses_are_bold() {
        let bad = [Line::new(Look::Bad, "lost")];
        assert!(frame(&bad, 2, true).contains("\x1b[31mlost"));
        let plain = frame(&bad, 2, false);
        assert!(plain.contains("\x1b[1mlost") && !plain.contains("\x1b[31m"));
    }
}
