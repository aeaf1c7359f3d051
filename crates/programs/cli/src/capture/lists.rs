//! `-D`, `-L`, `-J` and `-d`: lists that are printed instead of a capture.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Result, bail};
use tapline_capture::DroppedPackets;
use tapline_capture::af_packet::{self, InterfaceInfo, TimestampSource};
use tapline_packet::{Interface, LinkType};

use super::args::CaptureArgs;
use super::filtering::Filtering;
use super::input::{READ_HERE, chosen_interfaces};
use crate::compiler::program_form;
use crate::interfaces::{self, InterfacesArgs};
use crate::live::{TAP, bare_name, captures};
use crate::mistakes::misuse;

/// Whether a list was requested.
pub(super) fn wanted(args: &CaptureArgs) -> bool {
    args.list_interfaces || args.list_data_link_types || args.list_time_stamp_types
}

/// Prints the list.
pub(super) fn print(args: &CaptureArgs) -> Result<()> {
    if args.list_interfaces {
        return interfaces::list(&InterfacesArgs {
            json: args.json,
            netns: args.netns.clone(),
            container: None,
            socket: args.tap.socket.clone(),
        });
    }
    let mut out = io::stdout().lock();
    let names = chosen_interfaces(args)?;
    if let [name] = names.as_slice()
        && let Some(capture) = name.strip_prefix(TAP)
    {
        return print_tap(args, capture, &mut out);
    }
    if names == [DroppedPackets::NAME] {
        let (name, link_type) = (DroppedPackets::NAME, DroppedPackets::LINK_TYPE);
        return print_types(args, name, link_type, &[TimestampSource::Host], &mut out);
    }
    for InterfaceInfo { name, link_type, timestamps, .. } in chosen(args, &names)? {
        print_types(args, &name, link_type, &timestamps, &mut out)?;
    }
    Ok(())
}

/// Prints the link types and time stamp types of an interface.
fn print_types(
    args: &CaptureArgs,
    name: &str,
    link_type: LinkType,
    timestamps: &[TimestampSource],
    out: &mut impl Write,
) -> Result<()> {
    if args.list_data_link_types {
        writeln!(out, "link types of {name} (use option -y):")?;
        for link_type in [link_type, LinkType::LINUX_SLL, LinkType::LINUX_SLL2] {
            writeln!(out, "  {}", link_type_line(link_type))?;
        }
    }
    if args.list_time_stamp_types {
        writeln!(out, "time stamp types of {name} (use option -j):")?;
        for source in timestamps {
            writeln!(out, "  {} ({})", source.name(), source.description())?;
        }
        for mode in READ_HERE {
            writeln!(out, "  {mode} ({})", mode.description())?;
        }
    }
    Ok(())
}

/// Prints the time stamp sources of a capture of `tapline serve`.
fn print_tap(args: &CaptureArgs, name: &str, out: &mut impl Write) -> Result<()> {
    let captures = captures(args.tap.socket.as_deref(), PATIENCE)?;
    let Some(capture) = captures.iter().find(|capture| capture.name == name) else {
        bail!(
            "{TAP}{name} is not there, or not for this user; tapline interfaces lists the captures that are"
        );
    };
    if args.list_data_link_types {
        writeln!(out, "link types of {TAP}{name}, its interfaces' own:")?;
        for link_type in interfaces::link_types(capture) {
            writeln!(out, "  {}", link_type_line(link_type))?;
        }
    }
    if args.list_time_stamp_types {
        writeln!(out, "time stamp types of {TAP}{name}: as the daemon captures (time_stamps in its rules)")?;
    }
    Ok(())
}

/// Time limit for the answer of a named daemon.
const PATIENCE: Duration = Duration::from_secs(10);

fn link_type_line(link_type: LinkType) -> String {
    match (link_type.name(), link_type.description()) {
        (Some(name), Some(description)) => format!("{name} ({description})"),
        _ => format!("{} (unknown)", link_type.0),
    }
}

/// The interfaces that -i names, with their facts.
fn chosen(args: &CaptureArgs, names: &[String]) -> Result<Vec<InterfaceInfo>> {
    let names: Vec<String> = names.iter().map(|name| bare_name(name).to_owned()).collect();
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
            misuse!("-y {name}: there is no such link type; tapline capture -L lists those of an interface")
        }
        known => Ok(known),
    }
}

/// Prints the filter's program for an interface: `-d`, `-dd`, `-ddd`.
pub(super) fn dump(args: &CaptureArgs, filtering: &Filtering, interface: &Interface) -> Result<()> {
    let program = filtering.program(interface)?;
    io::stdout().write_all(program.program().text(program_form(args.dump)).as_bytes())?;
    Ok(())
}
