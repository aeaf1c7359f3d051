//! Rights of a viewer: counts, names, packets.

tapline_packet::named_enum! {
    /// The rights of a viewer. Each right includes those before it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Rights {
        /// Counts and addresses; no names from payloads.
        Look = "look",
        /// Also names that clients asked for.
        Names = "names",
        /// Also packets, as far as the daemon or the store lets this process have them.
        Packets = "packets",
    }
}
