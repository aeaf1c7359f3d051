//! Filters with words for names: the words are a stage behind the filter.

use tapline_graph::plan::{StageDraft, Value};
use tapline_syntax::Error;

use super::split_names;

/// `filter("tcp and sni(a.test)")` is `filter("tcp") -> names("sni(a.test)")`.
pub(crate) fn expand(filter: &StageDraft) -> Result<Vec<StageDraft>, Error> {
    let is_text = |key: Option<&str>| key.is_none_or(|key| key == "text");
    let place = filter.arguments.iter().position(|argument| is_text(argument.key.as_deref()));
    let Some(argument) = place.map(|place| &filter.arguments[place]) else { return Ok(Vec::new()) };
    let split = split_names(&argument.value.text()).map_err(|why| argument.origin.error(why))?;
    let Some((text, words)) = split else { return Ok(Vec::new()) };
    let names = StageDraft { origin: filter.origin, ..StageDraft::new("names").arg(words) };
    if text.is_empty() && filter.arguments.len() == 1 {
        return Ok(vec![StageDraft { name: filter.name.clone(), ..names }]);
    }
    let mut filter = filter.clone();
    if let Some(argument) = place.map(|place| &mut filter.arguments[place]) {
        argument.value = Value::Text(text);
    }
    Ok(vec![filter, names])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(filter: StageDraft) -> Result<Vec<String>, Error> {
        expand(&filter).map(|stages| stages.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn names_become_a_stage_behind_their_filter() {
        let filter = |text: &str| StageDraft::new("filter").named("f").arg(text);
        assert_eq!(text(filter("tcp")).unwrap(), [""; 0]);
        assert_eq!(text(filter("sni(a.test)")).unwrap(), ["f :: names(\"sni(a.test)\")"]);
        let both = text(filter("tcp and sni(a.test)")).unwrap();
        assert_eq!(both, ["f :: filter(\"tcp\")", "names(\"sni(a.test)\")"]);
        let follow =
            text(StageDraft::new("filter").with("fragments", "follow").with("text", "sni(a.test)")).unwrap();
        assert_eq!(follow.len(), 2, "{follow:?}");
        assert!(text(filter("tcp or sni(a.test)")).is_err());
    }
}
