//! The graph that is profiled, as a text: source, filter, and the stages behind.

use std::path::Path;

use anyhow::{Result, anyhow};
use tapline_graph::plan::{StageDraft, Value};

use super::ProfileArgs;
use crate::compiler::filter_text;
use crate::mistakes::misuse;

/// The graph as a text: source, filter, and the stages behind.
pub(super) fn graph(args: &ProfileArgs) -> Result<String> {
    let filter = filter_text(None, &args.filter)?;
    let source = match (&args.interface, &args.read, &args.graph) {
        (Some(interface), _, _) => StageDraft::new("device")
            .arg(interface.as_str())
            .with("stamp", Value::word(&args.time_stamp_type.to_string())),
        (_, Some(file), _) => StageDraft::new("file").arg(path_text(file)?),
        (None, None, Some(_)) if !filter.is_empty() || args.write.is_some() => {
            misuse!("a whole graph has its own filter and outputs; give -i or -r to put -e behind a source")
        }
        (None, None, Some(graph)) => return Ok(graph.clone()),
        (None, None, None) => {
            misuse!("no input: give -i INTERFACE, -r FILE or -e GRAPH; or --timestamps, --micro, --compare")
        }
    };
    let mut stages = vec![source];
    stages.extend((!filter.is_empty()).then(|| StageDraft::new("filter").arg(filter)));
    if args.graph.is_none() {
        stages.push(StageDraft::new("count"));
        let path = args.write.as_deref().map(path_text).transpose()?;
        stages.extend(path.map(|path| StageDraft::new("record").arg(path)));
    }
    let stages = stages.iter().map(StageDraft::to_string).chain(args.graph.clone());
    Ok(stages.collect::<Vec<_>>().join(" -> "))
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| anyhow!("{}: a graph cannot name a file that is not UTF-8", path.display()))
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
