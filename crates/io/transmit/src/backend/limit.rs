//! The greatest length of a frame, by the rule that AF_PACKET has: the MTU behind the link header, and a tag of
//! 802.1Q more. Frames that go past sockets are not checked by the kernel.

use tapline_packet::LinkType;
use tapline_sys::{LiveFrames, PIECES_MAX, SyscallError};

use super::super::SendPermit;
use super::{Backend, EMSGSIZE};

/// The longest chunk of AF_XDP, and so its longest frame.
pub(super) const CHUNK_MAX: u32 = 4096;

const ETHERNET_LEN: u32 = 14;
const TAG_LEN: u32 = 4;
/// 802.1Q, in the place of the type of an Ethernet frame.
const TAG: [u8; 2] = [0x81, 0x00];
const TYPE_AT: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    mtu: u32,
    is_ethernet: bool,
}

impl Limit {
    pub(super) fn of(permit: &SendPermit) -> Limit {
        Limit { mtu: permit.mtu(), is_ethernet: permit.link_type() == LinkType::ETHERNET }
    }

    /// Bytes of the longest frame.
    pub(super) fn longest(self) -> u32 {
        self.mtu.saturating_add(if self.is_ethernet { ETHERNET_LEN + TAG_LEN } else { 0 })
    }

    /// Whether a back end can carry every frame that the interface sends.
    ///
    /// # Errors
    /// The back end's limit, in words.
    pub(super) fn holds_all(self, backend: Backend) -> Result<(), String> {
        let most = match backend {
            Backend::Packet => return Ok(()),
            Backend::Xdp => CHUNK_MAX,
            Backend::Live => LiveFrames::room(),
        };
        match self.longest() <= most {
            true => Ok(()),
            false => Err(format!(
                "it carries frames of at most {most} bytes, and an MTU of {} allows longer ones",
                self.mtu
            )),
        }
    }

    /// Sends the frames before the first that is too long.
    pub(super) fn guard<'a, F, T>(
        self,
        frames: F,
        send: impl FnOnce(&mut dyn Iterator<Item = [&'a [u8]; PIECES_MAX]>) -> Result<T, SyscallError>,
    ) -> Result<T, SyscallError>
    where
        F: Iterator<Item = [&'a [u8]; PIECES_MAX]>,
    {
        let mut frames = frames.peekable();
        if frames.peek().is_some_and(|pieces| !self.fits(pieces)) {
            return Err(SyscallError::new("the interface's MTU", EMSGSIZE));
        }
        send(&mut frames.take_while(|pieces| self.fits(pieces)))
    }

    fn fits(self, pieces: &[&[u8]; PIECES_MAX]) -> bool {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let plain = self.longest() - if self.is_ethernet { TAG_LEN } else { 0 };
        len <= plain || len <= self.longest() && is_tagged(pieces)
    }
}

fn is_tagged(pieces: &[&[u8]; PIECES_MAX]) -> bool {
    pieces.iter().flat_map(|piece| piece.iter()).skip(TYPE_AT).take(TAG.len()).eq(&TAG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(mtu: u32, is_ethernet: bool, frame: &[u8]) -> bool {
        // The type may lie in either piece.
        [0, 12, 13, 14].into_iter().all(|cut| {
            let (head, rest) = frame.split_at(cut);
            Limit { mtu, is_ethernet }.fits(&[head, rest, &[]])
        })
    }

    #[test]
    fn one_tag_goes_beyond_the_mtu() {
        let mut frame = vec![0; 1518];
        assert!(fits(1500, true, &frame[..1514]) && !fits(1500, true, &frame[..1515]));
        frame[12..14].copy_from_slice(&TAG);
        assert!(fits(1500, true, &frame));
        frame.push(0);
        assert!(!fits(1500, true, &frame));
        assert!(fits(1519, false, &frame) && !fits(1518, false, &frame));
    }

    #[test]
    fn a_frame_that_is_too_long_ends_a_run() {
        let limit = Limit { mtu: 100, is_ethernet: true };
        let (short, long) = ([0; 60], [0; 200]);
        let count = |frames: &[&[u8]]| {
            let pieces = frames.iter().map(|frame| [*frame, &[], &[]]);
            limit.guard(pieces, |frames| Ok(frames.count())).map_err(|error| error.errno())
        };
        assert_eq!(count(&[&short, &short, &long, &short]), Ok(2));
        assert_eq!(count(&[&long, &short]), Err(EMSGSIZE));
        assert_eq!(count(&[]), Ok(0));
    }

    #[test]
    fn jumbo_frames_are_for_sockets() {
        let limit = |mtu| Limit { mtu, is_ethernet: true };
        for backend in [Backend::Live, Backend::Xdp] {
            assert_eq!(limit(1500).holds_all(backend), Ok(()));
            assert!(limit(65_000).holds_all(backend).unwrap_err().contains("an MTU of 65000"));
        }
        assert_eq!(limit(65_000).holds_all(Backend::Packet), Ok(()));
    }
}
