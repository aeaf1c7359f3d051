//! `tapline filter explain`: how a filter is understood.

use std::io::{self, Write};

use anyhow::{Result, anyhow, bail};
use tapline_filter::{Handle, Options, Stage};
use tapline_packet::LinkType;

use crate::args::{ExplainArgs, SNAP_LEN};
use crate::capture::{filter_text, form};
use crate::fpl;

/// Runs the command.
pub(crate) fn explain(args: &ExplainArgs) -> Result<()> {
    let Some(link_type) = LinkType::from_name(&args.link_type) else {
        bail!(
            "there is no link type '{}': names and numbers are those of tcpdump.org/linktypes.html",
            args.link_type
        );
    };
    if let Some(path) = &args.fpl.fpl {
        if !args.filter.is_empty() || args.filter_file.is_some() {
            bail!("--fpl explains a program alone: leave the filter out");
        }
        let explained = fpl::explain(path, link_type, &args.fpl, &args.stage)?;
        return Ok(io::stdout().write_all(explained.as_bytes())?);
    }
    let text = filter_text(args.filter_file.as_deref(), &args.filter)?;
    let options = Options {
        link_type,
        // As with tcpdump.
        snap_len: if args.snapshot_length == 0 { SNAP_LEN } else { args.snapshot_length },
        netmask: Some(0),
        handle: if args.live { Handle::Live } else { Handle::Dead },
        optimise: !args.no_optimize,
        scoped: args.language.scoped,
        ipv6_extensions: args.language.ipv6_extensions,
        ..Options::default()
    };
    if !args.stage.is_empty() {
        return Ok(io::stdout().write_all(stages(&args.stage, &text, &options)?.as_bytes())?);
    }
    let explained = if args.dump > 0 {
        tapline_filter::compile(&text, &options).map(|program| program.text(form(args.dump)))
    } else {
        tapline_filter::explain(&text, &options)
    };
    match explained {
        Ok(explained) => Ok(io::stdout().write_all(explained.as_bytes())?),
        Err(error) => bail!("{}", error.render(&text)),
    }
}

/// A form of the filter that can be shown.
#[derive(Clone, Copy)]
enum Form {
    Stage(Stage),
    Native,
}

/// What the command line calls machine code.
const NATIVE: &str = "native";

impl Form {
    fn all() -> impl Iterator<Item = Form> {
        Stage::ALL.into_iter().map(Form::Stage).chain([Form::Native])
    }

    fn name(self) -> &'static str {
        match self {
            Form::Stage(stage) => stage.name(),
            Form::Native => NATIVE,
        }
    }

    fn show(self, text: &str, options: &Options) -> Result<String> {
        let shown = match self {
            Form::Stage(stage) => stage.show(text, options),
            Form::Native => return native(text, options),
        };
        shown.map_err(|error| anyhow!("{}", error.render(text)))
    }
}

#[cfg(feature = "jit")]
fn native(text: &str, options: &Options) -> Result<String> {
    let ir = tapline_filter::compile_ir(text, options).map_err(|error| anyhow!("{}", error.render(text)))?;
    Ok(tapline_jit::Native::assembly(&ir)?)
}

#[cfg(not(feature = "jit"))]
fn native(_: &str, _: &Options) -> Result<String> {
    bail!("this program was built without native code: the feature jit")
}

/// The forms that were asked for, each under its name if there are several.
fn stages(names: &[String], text: &str, options: &Options) -> Result<String> {
    let mut wanted = Vec::new();
    for name in names {
        let name = name.trim();
        match Form::all().find(|form| form.name() == name) {
            Some(form) => wanted.push(form),
            None if name == "all" => wanted.extend(Form::all()),
            None => {
                let known: Vec<&str> = Form::all().map(Form::name).collect();
                bail!("there is no stage '{name}': say {} or all", known.join(", "))
            }
        }
    }
    let show = |form: &Form| {
        let shown = form.show(text, options)?;
        Ok(if wanted.len() > 1 { format!("{}:\n{shown}\n", form.name()) } else { shown })
    };
    wanted.iter().map(show).collect()
}
