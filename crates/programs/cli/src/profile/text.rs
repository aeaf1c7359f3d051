//! The graph that is profiled, as a text: source, filter, and the stages behind.

use std::path::Path;

use anyhow::{Result, anyhow, bail};

use super::ProfileArgs;
use crate::compiler::filter_text;

/// The graph as a text: source, filter, and the stages behind.
pub(super) fn graph(args: &ProfileArgs) -> Result<String> {
    let filter = filter_text(None, &args.filter)?;
    let source = match (&args.interface, &args.read, &args.graph) {
        (Some(interface), _, _) => format!("device({}, stamp={})", quoted(interface), args.time_stamp_type),
        (_, Some(file), _) => format!("file({})", quoted(path_text(file)?)),
        (None, None, Some(_)) if !filter.is_empty() || args.write.is_some() => {
            bail!("a whole graph has its own filter and outputs; give -i or -r to put -e behind a source")
        }
        (None, None, Some(graph)) => return Ok(graph.clone()),
        (None, None, None) => {
            bail!("no input: give -i INTERFACE, -r FILE or -e GRAPH; or --timestamps, --micro, --compare")
        }
    };
    let filter = if filter.is_empty() { String::new() } else { format!(" -> filter({})", quoted(&filter)) };
    let rest = match (&args.graph, &args.write) {
        (Some(graph), _) => graph.clone(),
        (None, Some(path)) => format!("count -> record({})", quoted(path_text(path)?)),
        (None, None) => "count".to_owned(),
    };
    Ok(format!("{source}{filter} -> {rest}"))
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| anyhow!("{}: a graph cannot name a file that is not UTF-8", path.display()))
}

/// A text of the graph language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

pub(super) fn title(args: &ProfileArgs) -> String {
    let source = match (&args.interface, &args.read) {
        (Some(interface), _) => interface.clone(),
        (_, Some(file)) => file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned(),
        _ => "graph".to_owned(),
    };
    let filter = args.filter.join(" ");
    let mut title =
        [source, filter].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ");
    if args.no_kernel_filter {
        title += ", no kernel filter";
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_graph_language_are_quoted() {
        assert_eq!(quoted(r#"a "b" \c"#), r#""a \"b\" \\c""#);
    }
}
