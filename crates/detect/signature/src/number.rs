//! Numbers in options: comparisons with ranges, and numbers in bases.

/// A comparison of a number with constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// From the first to the second, both included.
    Within(u64, u64),
    /// Any but this number.
    Not(u64),
}

impl Comparison {
    /// `N`, `!N`, `<N`, `>N`, `<=N`, `>=N`, `N<>M` (between, both excluded), `N<=>M` and `N-M` (both included).
    pub(crate) fn parse(text: &str, max: u64) -> Result<Comparison, String> {
        let text = text.trim();
        let of = |digits: &str| number(digits, max);
        if let Some((least, greatest)) = text.split_once("<=>") {
            return within(text, of(least)?, of(greatest)?);
        }
        if let Some((least, greatest)) = text.split_once("<>") {
            return within(text, of(least)? + 1, of(greatest)?.saturating_sub(1));
        }
        if let Some(rest) = text.strip_prefix(">=") {
            return within(text, of(rest)?, max);
        }
        if let Some(rest) = text.strip_prefix("<=") {
            return Ok(Comparison::Within(0, of(rest)?));
        }
        if let Some(rest) = text.strip_prefix('>') {
            return within(text, of(rest)? + 1, max);
        }
        if let Some(rest) = text.strip_prefix('<') {
            let below = of(rest)?;
            return below
                .checked_sub(1)
                .map(|greatest| Comparison::Within(0, greatest))
                .ok_or_else(|| format!("`{text}` fits nothing"));
        }
        if let Some(rest) = text.strip_prefix('!') {
            return Ok(Comparison::Not(of(rest)?));
        }
        let rest = text.strip_prefix('=').unwrap_or(text);
        match rest.split_once('-').filter(|(least, _)| !least.trim().is_empty()) {
            Some((least, "")) => within(text, of(least)?, max),
            Some((least, greatest)) => within(text, of(least)?, of(greatest)?),
            None => of(rest).map(|number| Comparison::Within(number, number)),
        }
    }

    /// Whether a number fits.
    pub(crate) fn holds(self, number: u64) -> bool {
        match self {
            Comparison::Within(least, greatest) => (least..=greatest).contains(&number),
            Comparison::Not(other) => number != other,
        }
    }
}

fn within(text: &str, least: u64, greatest: u64) -> Result<Comparison, String> {
    match least <= greatest {
        true => Ok(Comparison::Within(least, greatest)),
        false => Err(format!("`{text}` fits nothing")),
    }
}

/// A number of at most `max`, decimal or behind `0x`.
pub(crate) fn number(text: &str, max: u64) -> Result<u64, String> {
    let text = text.trim();
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let parsed = parsed.map_err(|_| format!("`{text}` is not a number"))?;
    if parsed > max { Err(format!("`{text}` exceeds {max}")) } else { Ok(parsed) }
}

/// A number with a sign, of at most 65,535 either way.
pub(crate) fn signed(text: &str) -> Result<i64, String> {
    let text = text.trim();
    match text.strip_prefix('-') {
        Some(digits) => number(digits, 65_535).map(|number| -(number as i64)),
        None => number(text, 65_535).map(|number| number as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_hold_for_what_they_say() {
        for (text, inside, outside) in [
            ("300", 300, 301),
            ("!300", 299, 300),
            (">400", 401, 400),
            ("<400", 399, 400),
            (">=4", 4, 3),
            ("<=4", 4, 5),
            ("300<>400", 399, 400),
            ("300<=>400", 400, 401),
            ("3-5", 5, 6),
            ("0x10", 16, 10),
        ] {
            let comparison = Comparison::parse(text, 65_535).expect(text);
            assert!(comparison.holds(inside) && !comparison.holds(outside), "{text}");
        }
        for text in ["", "x", "<0", "5<>6", "9<>3", "70000", ">65535", "-3"] {
            assert!(Comparison::parse(text, 65_535).is_err(), "{text}");
        }
        assert_eq!((signed("-7"), signed("12")), (Ok(-7), Ok(12)));
    }
}
