//! First sequence numbers of TCP connections, so that later ones can be shown relative to them.

/// Connections seen so far.
pub(crate) struct Connections {}

impl Connections {
    pub(crate) fn new() -> Connections {
        Connections {}
    }
}
