//! `tapline filter explain`: how a filter is understood.

use std::io::{self, Write};

use anyhow::{Result, bail};
use tapline_filter::{Error, Handle, Options, Stage};
use tapline_packet::LinkType;

use crate::args::ExplainArgs;
use crate::capture::{filter_text, form};

/// Runs the command.
pub(crate) fn explain(args: &ExplainArgs) -> Result<()> {
    let text = filter_text(args.filter_file.as_deref(), &args.filter)?;
    let Some(link_type) = LinkType::from_name(&args.link_type) else {
        bail!(
            "there is no link type {}: names and numbers are those of tcpdump.org/linktypes.html",
            args.link_type
        );
    };
    let options = Options {
        link_type,
        snap_len: args.snapshot_length,
        netmask: Some(0),
        handle: if args.live { Handle::Live } else { Handle::Dead },
        optimise: !args.no_optimize,
        scoped: args.language.scoped,
        ipv6_extensions: args.language.ipv6_extensions,
        ..Options::default()
    };
    let explained = if !args.stage.is_empty() {
        stages(&args.stage, &text, &options)?
    } else if args.dump > 0 {
        tapline_filter::compile(&text, &options).map(|program| program.text(form(args.dump)))
    } else {
        tapline_filter::explain(&text, &options)
    };
    match explained {
        Ok(explained) => Ok(io::stdout().write_all(explained.as_bytes())?),
        Err(error) => bail!("{}", error.render(&text)),
    }
}

/// The stages that were asked for, each under its name if there are several. The outer error is about the names, the inner
/// one about the filter.
fn stages(names: &[String], text: &str, options: &Options) -> Result<Result<String, Error>> {
    let mut wanted = Vec::new();
    for name in names {
        match Stage::ALL.into_iter().find(|stage| stage.name() == name) {
            Some(stage) => wanted.push(stage),
            None if name == "all" => wanted.extend(Stage::ALL),
            None => bail!("there is no stage {name}: say {} or all", Stage::ALL.map(Stage::name).join(", ")),
        }
    }
    let show = |stage: &Stage| {
        let shown = stage.show(text, options)?;
        Ok(if wanted.len() > 1 { format!("{}:\n{shown}\n", stage.name()) } else { shown })
    };
    Ok(wanted.iter().map(show).collect())
}
