//! NFS, versions 2 (RFC 1094) and 3 (RFC 1813), over ONC RPC (RFC 5531).
//!
//! ```text
//! [TCP: last fragment 1 bit, length 31] transaction 4, direction 4 (0 call, 1 reply)
//! call  = RPC version 4, program 4, version 4, procedure 4, credentials, verifier, arguments
//! reply = 4 (0 accepted, 1 denied), verifier, 4 (0 success), results;   credentials = flavor 4, length 4, bytes
//! file handle = [version 3: length 4] bytes;   name = length 4, bytes, padding to 4
//! ```
//!
//! Text: `NFS request xid 42 104 getattr fh Unknown/0100...`, `NFS reply xid 42 reply ok 112 getattr DIR 755 ids 0/0 sz
//! 4096`. tcpdump guesses the server's system from old forms of handles; ours are all `Unknown`, as those of today are
//! there.

mod calls;
mod reply;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::net::Ip;
use crate::text::Text;

pub(crate) use calls::Calls;

/// The server's port.
pub(crate) const PORT: u16 = 2049;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const VERSION_3: u32 = 3;

/// Version 2 has handles of one length.
const HANDLE_2_LEN: usize = 32;

const NULL: u32 = 0;
const GETATTR: u32 = 1;
const SETATTR: u32 = 2;
const LOOKUP: u32 = 3;
const ACCESS: u32 = 4;
const READLINK: u32 = 5;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const SYMLINK: u32 = 10;
const MKNOD: u32 = 11;
const REMOVE: u32 = 12;
const RMDIR: u32 = 13;
const RENAME: u32 = 14;
const LINK: u32 = 15;
const READDIR: u32 = 16;
const READDIRPLUS: u32 = 17;
const FSSTAT: u32 = 18;
const FSINFO: u32 = 19;
const PATHCONF: u32 = 20;
const COMMIT: u32 = 21;
const NO_OPERATION: u32 = 22;

const PROCEDURES: [&str; 23] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
    "nop",
];

/// Version 3's numbers of version 2's procedures.
const FROM_VERSION_2: [u32; 26] = [
    NULL,
    GETATTR,
    SETATTR,
    NO_OPERATION,
    LOOKUP,
    READLINK,
    READ,
    NO_OPERATION,
    WRITE,
    CREATE,
    REMOVE,
    RENAME,
    LINK,
    SYMLINK,
    MKDIR,
    RMDIR,
    READDIR,
    FSSTAT,
    NO_OPERATION,
    NO_OPERATION,
    NO_OPERATION,
    NO_OPERATION,
    NO_OPERATION,
    NO_OPERATION,
    NO_OPERATION,
    NO_OPERATION,
];

const FILE_TYPES: &[(u32, &str)] =
    &[(0, "NON"), (1, "REG"), (2, "DIR"), (3, "BLK"), (4, "CHR"), (5, "LNK"), (7, "FIFO")];

const WRITE_MODES: &[(u32, &str)] = &[(0, "unstable"), (1, "datasync"), (2, "filesync")];

const ACCESS_RIGHTS: &[(u32, &str)] = &[
    (0x01, "NFS_ACCESS_READ"),
    (0x02, "NFS_ACCESS_LOOKUP"),
    (0x04, "NFS_ACCESS_MODIFY"),
    (0x08, "NFS_ACCESS_EXTEND"),
    (0x10, "NFS_ACCESS_DELETE"),
    (0x20, "NFS_ACCESS_EXECUTE"),
];
const ACCESS_ALL: u32 = 0x3f;

/// A call to the server or a reply from it, after a TCP header's text. `false` if the segment starts with neither.
pub(crate) fn tcp(
    cx: &mut Context<'_>,
    span: Span<'_>,
    source: u16,
    destination: u16,
    ip: &Ip,
) -> Result<bool, Cut> {
    let Ok(fragment) = span.u32(0) else { return Ok(false) };
    let left = span.length.saturating_sub(4);
    let length = ((fragment & 0x7fff_ffff) as usize).min(left);
    message(cx, span.skip(4).with_length(length), ": ", source, destination, ip)
}

/// A call to the server or a reply from it. `false` if the datagram is neither.
pub(crate) fn udp(
    cx: &mut Context<'_>,
    span: Span<'_>,
    source: u16,
    destination: u16,
    ip: &Ip,
) -> Result<bool, Cut> {
    message(cx, span, "", source, destination, ip)
}

fn message(
    cx: &mut Context<'_>,
    span: Span<'_>,
    separator: &str,
    source: u16,
    destination: u16,
    ip: &Ip,
) -> Result<bool, Cut> {
    let (Ok(transaction), Ok(direction)) = (span.u32(0), span.u32(4)) else { return Ok(false) };
    cx.protocol = "nfs";
    if destination == PORT && direction == CALL {
        put!(cx, "{separator}NFS request xid {transaction} ");
        request(cx, span, transaction, ip)?;
    } else if source == PORT && direction == REPLY {
        put!(cx, "{separator}NFS reply xid {transaction} ");
        reply::print(cx, span, transaction, ip)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Version 3's number of a procedure.
fn procedure_of(version: u32, procedure: u32) -> u32 {
    let known = usize::try_from(procedure).ok().and_then(|index| FROM_VERSION_2.get(index));
    match known {
        Some(&same) if version != VERSION_3 => same,
        _ => procedure,
    }
}

fn print_procedure(cx: &mut Context<'_>, procedure: u32) {
    match usize::try_from(procedure).ok().and_then(|index| PROCEDURES.get(index)) {
        Some(name) => put!(cx, " {name}"),
        None => put!(cx, " proc-{procedure}"),
    }
}

/// Takes one item after the other.
#[derive(Clone, Copy)]
struct Items<'p> {
    span: Span<'p>,
    is_version_3: bool,
}

impl<'p> Items<'p> {
    fn u32(&mut self) -> Result<u32, Cut> {
        let value = self.span.u32(0)?;
        self.span = self.span.skip(4);
        Ok(value)
    }

    fn u64(&mut self) -> Result<u64, Cut> {
        let value = self.span.u64(0)?;
        self.span = self.span.skip(8);
        Ok(value)
    }

    fn take(&mut self, count: usize) -> Result<Span<'p>, Cut> {
        self.span.need(count)?;
        let taken = self.span;
        self.span = taken.skip(count);
        Ok(taken)
    }

    /// ` fh Unknown/` and at most 32 bytes. The word is cut to the length of the handle in words, as in tcpdump.
    fn print_handle(&mut self, cx: &mut Context<'_>) -> Printed {
        let length = if self.is_version_3 { self.u32()? as usize / 4 * 4 } else { HANDLE_2_LEN };
        let handle = self.take(length)?;
        put!(cx, " fh {}/", &"Unknown"[..(length / 4).min(7)]);
        for &byte in handle.bytes(0, length.min(HANDLE_2_LEN))? {
            put!(cx, "{byte:02X}");
        }
        Ok(())
    }

    fn print_name(&mut self, cx: &mut Context<'_>) -> Printed {
        let length = self.u32()? as usize;
        let Some(padded) = length.checked_next_multiple_of(4) else { return Err(Cut) };
        let name = self.take(padded)?;
        cx.text("\"");
        cx.visible_all(name.bytes(0, length)?);
        cx.text("\"");
        Ok(())
    }

    fn print_handle_and_name(&mut self, cx: &mut Context<'_>) -> Printed {
        self.print_handle(cx)?;
        cx.text(" ");
        self.print_name(cx)
    }
}

fn request(cx: &mut Context<'_>, span: Span<'_>, transaction: u32, ip: &Ip) -> Printed {
    cx.dec(span.length);
    let Ok(procedure) = span.u32(20) else {
        cx.cut();
        return Ok(());
    };
    let version = span.u32(16)?;
    cx.calls.enter(transaction, ip.source, ip.destination, procedure, version);
    let procedure = procedure_of(version, procedure);
    print_procedure(cx, procedure);
    if matches!(procedure, NULL | NO_OPERATION..) {
        return Ok(());
    }
    if let Some(arguments) = arguments(span)? {
        let items = Items { span: arguments, is_version_3: version == VERSION_3 };
        print_arguments(cx, items, procedure)
    } else {
        cx.cut();
        Ok(())
    }
}

/// The arguments behind credentials and verifier; `None` if there are none.
fn arguments(span: Span<'_>) -> Result<Option<Span<'_>>, Cut> {
    let mut at = 24;
    let mut left = span.length;
    for is_last in [false, true] {
        let Some(padded) = (span.u32(at + 4)? as usize).checked_next_multiple_of(4) else { return Ok(None) };
        span.need(at + 8 + padded)?;
        if left < 8 + padded + usize::from(is_last) {
            return Ok(None);
        }
        at += 8 + padded;
        left -= 8 + padded;
    }
    Ok(Some(span.skip(at)))
}

fn print_arguments(cx: &mut Context<'_>, mut items: Items<'_>, procedure: u32) -> Printed {
    let is_version_3 = items.is_version_3;
    match procedure {
        LOOKUP | CREATE | MKDIR | REMOVE | RMDIR | SYMLINK | MKNOD | RENAME => {
            items.print_handle_and_name(cx)?
        }
        _ => items.print_handle(cx)?,
    }
    match procedure {
        ACCESS => print_access(cx, items.u32()?),
        READ if is_version_3 => print_range(cx, items)?,
        READ => {
            let (offset, count) = (items.u32()?, items.u32()?);
            put!(cx, " {count} bytes @ {offset}");
        }
        COMMIT => print_range(cx, items)?,
        WRITE if is_version_3 => {
            let (offset, count, mode, length) = (items.u64()?, items.u32()?, items.u32()?, items.u32()?);
            put!(cx, " {length} ({count}) bytes @ {offset}");
            if cx.verbose() > 0 {
                print_write_mode(cx, mode);
            }
        }
        WRITE => {
            let [begin, offset, total, length] = [items.u32()?, items.u32()?, items.u32()?, items.u32()?];
            put!(cx, " {length} ({total}) bytes @ {offset} ({begin})");
        }
        SYMLINK => {
            cx.text(" ->");
            let attributes = if is_version_3 { Some(SetAttributes::take(&mut items)?) } else { None };
            items.print_name(cx)?;
            if let Some(attributes) = attributes {
                attributes.print(cx);
            }
        }
        MKNOD => print_node(cx, items)?,
        RENAME | LINK => {
            cx.text(" ->");
            items.print_handle_and_name(cx)?;
        }
        READDIR | READDIRPLUS => print_directory_range(cx, items, procedure)?,
        _ => {}
    }
    Ok(())
}

/// Offset 8, count 4.
fn print_range(cx: &mut Context<'_>, mut items: Items<'_>) -> Printed {
    let (offset, count) = (items.u64()?, items.u32()?);
    put!(cx, " {count} bytes @ {offset}");
    Ok(())
}

fn print_write_mode(cx: &mut Context<'_>, mode: u32) {
    match lookup(WRITE_MODES, mode) {
        Some(name) => put!(cx, " <{name}>"),
        None => put!(cx, " <#{mode}>"),
    }
}

fn print_access(cx: &mut Context<'_>, rights: u32) {
    if rights & !ACCESS_ALL != 0 {
        return put!(cx, " {rights:04x}");
    }
    if rights == ACCESS_ALL {
        return cx.text(" NFS_ACCESS_FULL");
    }
    let mut separator = " ";
    for (bit, name) in ACCESS_RIGHTS {
        if rights & bit != 0 {
            cx.text(separator);
            cx.text(name);
            separator = "|";
        }
    }
}

fn print_node(cx: &mut Context<'_>, mut items: Items<'_>) -> Printed {
    let kind = items.u32()?;
    let attributes = SetAttributes::take(&mut items)?;
    match lookup(FILE_TYPES, kind) {
        Some(name) => put!(cx, " {name}"),
        None => put!(cx, " unk-ft {kind}"),
    }
    // Character and block devices have a number.
    if cx.verbose() > 0 && matches!(kind, 3 | 4) {
        let (major, minor) = (items.u32()?, items.u32()?);
        put!(cx, " {major}/{minor}");
    }
    attributes.print(cx);
    Ok(())
}

/// Version 3: cookie 8, verifier 8, count 4, [maximum 4]; version 2: cookie 4, count 4.
fn print_directory_range(cx: &mut Context<'_>, mut items: Items<'_>, procedure: u32) -> Printed {
    if !items.is_version_3 && procedure == READDIR {
        let (cookie, count) = (items.u32()?, items.u32()?);
        put!(cx, " {count} bytes @ {cookie}");
        return Ok(());
    }
    let (cookie, verifier, count) = (items.u64()?, items.u64()?, items.u32()?);
    put!(cx, " {count} bytes @ {}", cookie as i64);
    if cx.verbose() > 0 {
        if procedure == READDIRPLUS {
            put!(cx, " max {}", items.u32()?);
        }
        put!(cx, " verf {verifier:016x}");
    }
    Ok(())
}

/// The attributes that a call sets (version 3).
struct SetAttributes {
    mode: Option<u32>,
    user: Option<u32>,
    group: Option<u32>,
    accessed: Option<(u32, u32)>,
    modified: Option<(u32, u32)>,
}

impl SetAttributes {
    fn take(items: &mut Items<'_>) -> Result<SetAttributes, Cut> {
        let mode = Self::optional(items)?;
        let user = Self::optional(items)?;
        let group = Self::optional(items)?;
        // The size, which is not shown; its upper half is read as what follows, in tcpdump too.
        Self::optional(items)?;
        Ok(SetAttributes { mode, user, group, accessed: Self::time(items)?, modified: Self::time(items)? })
    }

    fn optional(items: &mut Items<'_>) -> Result<Option<u32>, Cut> {
        if items.u32()? != 0 { items.u32().map(Some) } else { Ok(None) }
    }

    /// 2: a time follows; 0 leaves it, 1 is the server's.
    fn time(items: &mut Items<'_>) -> Result<Option<(u32, u32)>, Cut> {
        if items.u32()? == 2 { Ok(Some((items.u32()?, items.u32()?))) } else { Ok(None) }
    }

    fn print(&self, cx: &mut Context<'_>) {
        if cx.verbose() == 0 {
            return;
        }
        if let Some(mode) = self.mode {
            put!(cx, " mode {mode:o}");
        }
        for (name, value) in [("uid", self.user), ("gid", self.group)] {
            if let Some(value) = value {
                put!(cx, " {name} {value}");
            }
        }
        for (name, time) in [("atime", self.accessed), ("mtime", self.modified)] {
            if let Some((seconds, fraction)) = time.filter(|_| cx.verbose() > 1) {
                put!(cx, " {name} {seconds}.{fraction:06}");
            }
        }
    }
}
