//! `-D`, `-L`, `-J` and `-d`: what can be asked for instead of a capture.

use std::io::{self, Write};

use anyhow::{Result, bail};
use tapline_capture::af_packet::{self, InterfaceInfo};
use tapline_filter::bpf::Form;
use tapline_packet::{Interface, LinkType};

use super::filtering::Filtering;
use super::input::{READ_HERE, chosen_interfaces};
use crate::args::{CaptureArgs, InterfacesArgs};
use crate::interfaces;
use crate::live::bare_name;

/// Whether a list was asked for.
pub(super) fn wanted(args: &CaptureArgs) -> bool {
    args.list_interfaces || args.list_data_link_types || args.list_time_stamp_types
}

/// Prints the list.
pub(super) fn print(args: &CaptureArgs) -> Result<()> {
    if args.list_interfaces {
        return interfaces::list(&InterfacesArgs { json: args.json, netns: args.netns.clone() });
    }
    let mut out = io::stdout().lock();
    for interface in chosen(args)? {
        if args.list_data_link_types {
            writeln!(out, "link types of {} (use option -y):", interface.name)?;
            writeln!(out, "  {}", link_type_line(interface.link_type))?;
        }
        if args.list_time_stamp_types {
            writeln!(out, "time stamp types of {} (use option -j):", interface.name)?;
            for source in &interface.timestamps {
                writeln!(out, "  {} ({})", source.name(), source.description())?;
            }
            for mode in READ_HERE {
                writeln!(out, "  {mode} ({})", mode.description())?;
            }
        }
    }
    Ok(())
}

fn link_type_line(link_type: LinkType) -> String {
    match (link_type.name(), link_type.description()) {
        (Some(name), Some(description)) => format!("{name} ({description})"),
        _ => format!("{} (unknown)", link_type.0),
    }
}

/// What is known of the interfaces that -i names.
fn chosen(args: &CaptureArgs) -> Result<Vec<InterfaceInfo>> {
    let names: Vec<String> = chosen_interfaces(args)?.iter().map(|name| bare_name(name).to_owned()).collect();
    let present = af_packet::list(args.netns.as_deref())?;
    let is_any = names.iter().any(|name| name == "any");
    let chosen: Vec<_> = present.into_iter().filter(|info| is_any || names.contains(&info.name)).collect();
    if chosen.is_empty() {
        bail!("there is no interface {}; tapline interfaces lists them", names.join(", "));
    }
    Ok(chosen)
}

/// The link type to compile for, if only a program is wanted and -y says for which: then nothing needs to be opened.
pub(super) fn dump_link_type(args: &CaptureArgs) -> Result<Option<LinkType>> {
    let Some(name) = args.linktype.as_ref().filter(|_| args.dump > 0 && args.read.is_empty()) else {
        return Ok(None);
    };
    match LinkType::from_name(name) {
        None => {
            bail!("-y {name}: there is no such link type; tapline capture -L lists those of an interface")
        }
        known => Ok(known),
    }
}

/// Prints the filter's program for an interface: `-d`, `-dd`, `-ddd`.
pub(super) fn dump(args: &CaptureArgs, filtering: &Filtering, interface: &Interface) -> Result<()> {
    let program = filtering.program(interface)?;
    io::stdout().write_all(program.text(form(args.dump)).as_bytes())?;
    Ok(())
}

/// How a program is written down for so many `-d`.
pub(crate) fn form(count: u8) -> Form {
    match count {
        0 | 1 => Form::Assembly,
        2 => Form::C,
        _ => Form::Decimal,
    }
}
