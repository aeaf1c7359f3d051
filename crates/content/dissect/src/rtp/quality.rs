//! The quality of a call as a number: the E-model of ITU-T G.107, simplified.
//!
//! ```text
//! R   = 93.2 - Id - Ie,eff
//! Id  = 0.024 d + 0.11 (d - 177.3) where d > 177.3             d: delay in ms (Cole and Rosenbluth, 2001)
//! Ie,eff = Ie + (95 - Ie) Ppl / (Ppl + Bpl)                    Ppl: packets lost in percent; losses at random
//! MOS = 1 + 0.035 R + R (R - 60) (100 - R) 7 / 10^6            within 1 and 4.5
//! ```
//!
//! The delay of the network cannot be seen at one place. It counts as 0; the delay consists of a packet of 20 ms and
//! a buffer of twice the mean jitter. So the number is an upper bound of the stream's quality.

/// An encoding with figures in ITU-T G.113, Appendix I.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Codec {
    /// `Ie`, the impairment without loss.
    pub impairment: f64,
    /// `Bpl`, the robustness against loss.
    pub robustness: f64,
}

impl Codec {
    /// The encoding of a name as RTP has it; `None` for those without published figures for random loss.
    pub fn of_name(name: &str) -> Option<Codec> {
        let codec = |impairment, robustness| Some(Codec { impairment, robustness });
        match name.to_ascii_uppercase().as_str() {
            // G.711 with concealment of losses.
            "PCMU" | "PCMA" => codec(0.0, 25.1),
            "G729" => codec(11.0, 19.0),
            "G723" => codec(15.0, 16.1),
            "GSM-EFR" => codec(5.0, 10.0),
            _ => None,
        }
    }
}

/// The mean opinion score, 1 to 4.5, of a stream that lost `lost` of `expected` packets.
pub fn mos(codec: Codec, lost: u64, expected: u64, jitter_mean_ns: u64) -> f64 {
    const PACKET_MS: f64 = 20.0;
    let delay = PACKET_MS + 2.0 * jitter_mean_ns as f64 / 1e6;
    let delay_impairment = 0.024 * delay + if delay > 177.3 { 0.11 * (delay - 177.3) } else { 0.0 };
    let percent = 100.0 * lost as f64 / expected.max(1) as f64;
    let Codec { impairment, robustness } = codec;
    let loss_impairment = impairment + (95.0 - impairment) * percent / (percent + robustness);
    let rating = (93.2 - delay_impairment - loss_impairment).clamp(0.0, 100.0);
    let score = 1.0 + 0.035 * rating + rating * (rating - 60.0) * (100.0 - rating) * 7e-6;
    score.clamp(1.0, 4.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_by_hand() {
        let g711 = Codec::of_name("pcmu").expect("it has figures");
        // R = 93.2 - 0.48 = 92.72
        assert!((mos(g711, 0, 100, 0) - 4.40).abs() < 0.005, "{}", mos(g711, 0, 100, 0));
        // 5 %: Ie,eff = 95 * 5 / 30.1 = 15.78, R = 76.94
        assert!((mos(g711, 5, 100, 0) - 3.90).abs() < 0.01, "{}", mos(g711, 5, 100, 0));
        assert_eq!(mos(g711, 100, 100, 10_000_000_000), 1.0);
        assert!(mos(Codec::of_name("G729").expect("figures"), 0, 1, 0) < mos(g711, 0, 1, 0));
        assert_eq!(Codec::of_name("opus"), None);
    }
}
