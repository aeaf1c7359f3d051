//! The nearest of some names.

/// The name that is nearest to a word, if any is near enough to be meant.
pub fn nearest<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let word = word.to_lowercase();
    let close = names.into_iter().map(|name| (strsim::jaro_winkler(&word, name), name));
    let best = close.filter(|(likeness, _)| *likeness > 0.8).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, name)| name)
}

/// The nearest name in words, to be put behind an error; empty if none is near.
pub(crate) fn nearest_text<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    nearest(word, names).map_or_else(String::new, |name| format!("; the nearest name is {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name() {
        let names = ["snapshot-length", "interface", "json"];
        assert_eq!(nearest("snapshot_lenght", names), Some("snapshot-length"));
        assert_eq!(nearest("Interfaces", names), Some("interface"));
        assert_eq!(nearest("colour", names), None);
    }
}
