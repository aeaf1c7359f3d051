//! Tags of the texts that a flow keeps.

/// Kinds of texts.
pub(super) const NAME: u8 = 0;
pub(super) const ALPN: u8 = 1;
pub(super) const PRINTS: u8 = 2;
pub(super) const METHOD: u8 = 3;
pub(super) const HOST: u8 = 4;
pub(super) const TARGET: u8 = 5;
pub(super) const USER_AGENT: u8 = 6;
/// And the side.
pub(super) const PAYLOAD: u8 = 8;
