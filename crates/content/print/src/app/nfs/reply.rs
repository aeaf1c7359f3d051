//! Replies of an NFS server.
//!
//! ```text
//! results    = status 4 (0: well), what the procedure returns
//! attributes = type 4, mode 4, links 4, user 4, group 4, size 8, used 8, device 8, file system 8, file 8, times 3 x 8
//! optional   = 4 (1: attributes follow);   before = 4 (1: size 8, modified 8, changed 8 follow)
//! version 2  : size 4, block size 4, device 4, blocks 4, file system 4, file 4, times 3 x 8
//! ```

use super::{
    ACCESS, COMMIT, CREATE, FILE_TYPES, FSINFO, FSSTAT, GETATTR, Items, LINK, LOOKUP, MKDIR, MKNOD,
    NO_OPERATION, NULL, PATHCONF, READ, READDIR, READDIRPLUS, READLINK, REMOVE, RENAME, RMDIR, SETATTR,
    SYMLINK, VERSION_3, WRITE, print_procedure, print_write_mode, procedure_of,
};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::net::Ip;
use crate::text::Text;

/// Reasons for a denied call (RFC 5531, `auth_stat`).
const DENIALS: &[(u32, &str)] = &[
    (0, "OK"),
    (1, "Bogus Credentials (seal broken)"),
    (2, "Rejected Credentials (client should begin new session)"),
    (3, "Bogus Verifier (seal broken)"),
    (4, "Verifier expired or was replayed"),
    (5, "Credentials are too weak"),
    (6, "Bogus response verifier"),
    (7, "Unknown failure"),
];

/// Reasons for a failed call (`accept_stat`).
const FAILURES: &[(u32, &str)] =
    &[(1, "PROG_UNAVAIL"), (2, "PROG_MISMATCH"), (3, "PROC_UNAVAIL"), (4, "GARBAGE_ARGS"), (5, "SYSTEM_ERR")];

const STATUSES: &[(u32, &str)] = &[
    (1, "Operation not permitted"),
    (2, "No such file or directory"),
    (5, "Input/output error"),
    (6, "Device not configured"),
    (11, "Resource deadlock avoided"),
    (12, "Cannot allocate memory"),
    (13, "Permission denied"),
    (17, "File exists"),
    (18, "Cross-device link"),
    (19, "Operation not supported by device"),
    (20, "Not a directory"),
    (21, "Is a directory"),
    (22, "Invalid argument"),
    (26, "Text file busy"),
    (27, "File too large"),
    (28, "No space left on device"),
    (30, "Read-only file system"),
    (31, "Too many links"),
    (45, "Operation not supported"),
    (62, "Too many levels of symbolic links"),
    (63, "File name too long"),
    (66, "Directory not empty"),
    (69, "Disc quota exceeded"),
    (70, "Stale NFS file handle"),
    (71, "Too many levels of remote in path"),
    (99, "Write cache flushed to disk"),
    (10001, "Illegal NFS file handle"),
    (10002, "Update synchronization mismatch"),
    (10003, "READDIR/READDIRPLUS cookie is stale"),
    (10004, "Operation not supported"),
    (10005, "Buffer or request is too small"),
    (10006, "Unspecified error on server"),
    (10007, "Object of that type not supported"),
    (10008, "Request couldn't be completed in time"),
];

/// A reply from its kind on.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>, transaction: u32, ip: &Ip) -> Printed {
    let Ok(kind) = span.u32(8) else {
        cx.cut();
        return Ok(());
    };
    match kind {
        0 => {
            put!(cx, "reply ok {}", span.length);
            match cx.calls.find(transaction, ip.destination, ip.source) {
                Some((procedure, version)) => print_accepted(cx, span, procedure, version),
                None => Ok(()),
            }
        }
        1 => {
            put!(cx, "reply ERR {}: ", span.length);
            if print_denied(cx, span).is_err() {
                cx.cut();
            }
            Ok(())
        }
        _ => {
            put!(cx, "reply Unknown rpc response code={kind} {}", span.length);
            Ok(())
        }
    }
}

fn print_denied(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    match span.u32(12)? {
        0 => {
            let (low, high) = (span.u32(16)?, span.u32(20)?);
            put!(cx, "RPC Version mismatch ({low}-{high})");
        }
        1 => {
            let reason = span.u32(16)?;
            match lookup(DENIALS, reason) {
                Some(name) => put!(cx, "Auth {name}"),
                None => put!(cx, "Auth Invalid failure code {reason}"),
            }
        }
        reason => put!(cx, "Unknown reason for rejecting rpc message {reason}"),
    }
    Ok(())
}

fn print_accepted(cx: &mut Context<'_>, span: Span<'_>, procedure: u32, version: u32) -> Printed {
    let procedure = procedure_of(version, procedure);
    print_procedure(cx, procedure);
    if matches!(procedure, NULL | NO_OPERATION..) {
        return Ok(());
    }
    let verifier_len = span.u32(16)? as usize;
    if verifier_len >= span.length {
        return Err(Cut);
    }
    let at = 20 + verifier_len.next_multiple_of(4);
    let state = span.u32(at)?;
    if state != 0 {
        match lookup(FAILURES, state) {
            Some(name) => put!(cx, " {name}"),
            None => put!(cx, " ar_stat {state}"),
        }
        return Ok(());
    }
    let mut items = Items { span: span.skip(at + 4), is_version_3: version == VERSION_3 };
    let status = items.u32()?;
    if status != 0 {
        match lookup(STATUSES, status) {
            Some(name) => put!(cx, " ERROR: {name}"),
            None => put!(cx, " ERROR: unk {status}"),
        }
    }
    if items.is_version_3 {
        print_results_3(cx, items, procedure, status == 0)
    } else if status == 0 {
        print_results_2(cx, items, procedure)
    } else {
        Ok(())
    }
}

/// Prints the results of version 2, if the call succeeded.
fn print_results_2(cx: &mut Context<'_>, mut items: Items<'_>, procedure: u32) -> Printed {
    let verbose = cx.verbose();
    match procedure {
        GETATTR | SETATTR => print_attributes(cx, &mut items, 1),
        READ | WRITE => print_attributes(cx, &mut items, verbose),
        LOOKUP | CREATE | MKDIR => {
            items.print_handle(cx)?;
            print_attributes(cx, &mut items, verbose)
        }
        READLINK => {
            cx.text(" ");
            items.print_name(cx)
        }
        READDIR => {
            let (offset, size, end) = (items.u32()?, items.u32()?, items.u32()?);
            put!(cx, " offset {offset:#x} size {size} ");
            cx.text(if end != 0 { " eof" } else { "" });
            Ok(())
        }
        FSSTAT => {
            for name in ["tsize", "bsize", "blocks", "bfree", "bavail"] {
                put!(cx, " {name} {}", items.u32()?);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Prints the results of version 3; a failed call has attributes too.
fn print_results_3(cx: &mut Context<'_>, mut items: Items<'_>, procedure: u32, well: bool) -> Printed {
    match procedure {
        GETATTR if well => print_attributes(cx, &mut items, 1),
        SETATTR | REMOVE | RMDIR => print_change(cx, &mut items),
        LOOKUP => print_lookup(cx, items, well),
        ACCESS => {
            title(cx, 1, " attr:");
            print_optional(cx, &mut items)?;
            if well {
                put!(cx, " c {:04x}", items.u32()?);
            }
            Ok(())
        }
        READLINK if well => {
            print_optional(cx, &mut items)?;
            cx.text(" ");
            items.print_name(cx)
        }
        READ => print_read(cx, items, well),
        WRITE => print_write(cx, items, well),
        CREATE | MKDIR | SYMLINK | MKNOD if well => print_created(cx, items),
        CREATE | MKDIR | SYMLINK | MKNOD => print_change(cx, &mut items),
        RENAME if cx.verbose() > 0 => {
            cx.text(" from:");
            print_change(cx, &mut items)?;
            cx.text(" to:");
            print_change(cx, &mut items)
        }
        LINK if cx.verbose() > 0 => {
            cx.text(" file POST:");
            print_optional(cx, &mut items)?;
            cx.text(" dir:");
            print_change(cx, &mut items)
        }
        READDIR | READDIRPLUS => {
            title(cx, 1, " POST:");
            print_optional(cx, &mut items)?;
            if well && cx.verbose() > 0 {
                put!(cx, " verf {:016x}", items.u64()?);
            }
            Ok(())
        }
        FSSTAT | FSINFO | PATHCONF => {
            title(cx, 1, " POST:");
            print_optional(cx, &mut items)?;
            match procedure {
                FSSTAT => print_space(cx, items),
                FSINFO if well => print_limits(cx, items),
                PATHCONF if well => print_path_limits(cx, items),
                _ => Ok(()),
            }
        }
        COMMIT => {
            print_change(cx, &mut items)?;
            if cx.verbose() > 1 {
                put!(cx, " verf {:x}", items.u64()?);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Text that only enough `-v` shows.
fn title(cx: &mut Context<'_>, verbose: u8, text: &str) {
    if cx.verbose() >= verbose {
        cx.text(text);
    }
}

fn print_attributes(cx: &mut Context<'_>, items: &mut Items<'_>, verbose: u8) -> Printed {
    let is_version_3 = items.is_version_3;
    let fields = items.take(if is_version_3 { 84 } else { 68 })?;
    if verbose == 0 {
        return Ok(());
    }
    let kind = fields.u32(0)?;
    match lookup(FILE_TYPES, kind) {
        Some(name) => put!(cx, " {name}"),
        None => put!(cx, " unk-ft {kind} "),
    }
    // User and group are printed as signed numbers: `nobody` was -2 on old systems.
    let (user, group) = (fields.u32(12)? as i32, fields.u32(16)? as i32);
    put!(cx, " {:o} ids {user}/{group}", fields.u32(4)?);
    let size = if is_version_3 { fields.u64(20)? } else { u64::from(fields.u32(20)?) };
    put!(cx, " sz {size}");
    if verbose == 1 {
        return Ok(());
    }
    put!(cx, " nlink {}", fields.u32(8)?);
    let times = if is_version_3 {
        put!(cx, " rdev {}/{}", fields.u32(36)?, fields.u32(40)?);
        put!(cx, " fsid {:x} fileid {:x} a/m/ctime", fields.u64(44)?, fields.u64(52)?);
        60
    } else {
        put!(cx, " rdev {:#x} fsid {:#x}", fields.u32(28)?, fields.u32(36)?);
        put!(cx, " nodeid {:#x} a/m/ctime", fields.u32(40)?);
        44
    };
    for at in [times, times + 8, times + 16] {
        put!(cx, " {}.{:06}", fields.u32(at)?, fields.u32(at + 4)?);
    }
    Ok(())
}

/// Attributes, if the server sent them.
fn print_optional(cx: &mut Context<'_>, items: &mut Items<'_>) -> Printed {
    let verbose = cx.verbose();
    if items.u32()? == 0 {
        return Ok(());
    }
    // tcpdump passes over them unseen where they are not printed.
    if verbose == 0 {
        items.span = items.span.skip(84);
        return Ok(());
    }
    print_attributes(cx, items, verbose)
}

/// Attributes before a change and after it.
fn print_change(cx: &mut Context<'_>, items: &mut Items<'_>) -> Printed {
    title(cx, 2, " PRE:");
    if items.u32()? != 0 {
        let before = items.take(24)?;
        if cx.verbose() > 1 {
            put!(cx, " sz {} mtime {}.{:06}", before.u64(0)?, before.u32(8)?, before.u32(12)?);
            put!(cx, " ctime {}.{:06}", before.u32(16)?, before.u32(20)?);
        }
    }
    title(cx, 1, " POST:");
    print_optional(cx, items)
}

fn print_lookup(cx: &mut Context<'_>, mut items: Items<'_>, well: bool) -> Printed {
    if well {
        items.print_handle(cx)?;
        print_optional(cx, &mut items)?;
    }
    if cx.verbose() > 1 {
        cx.text(" post dattr:");
        print_optional(cx, &mut items)?;
    }
    Ok(())
}

fn print_read(cx: &mut Context<'_>, mut items: Items<'_>, well: bool) -> Printed {
    print_optional(cx, &mut items)?;
    if well && cx.verbose() > 0 {
        put!(cx, " {} bytes", items.u32()?);
        cx.text(if items.u32()? != 0 { " EOF" } else { "" });
    }
    Ok(())
}

fn print_write(cx: &mut Context<'_>, mut items: Items<'_>, well: bool) -> Printed {
    print_change(cx, &mut items)?;
    if well && cx.verbose() > 0 {
        put!(cx, " {} bytes", items.u32()?);
        if cx.verbose() > 1 {
            print_write_mode(cx, items.u32()?);
            put!(cx, " verf {:x}", items.u64()?);
        }
    }
    Ok(())
}

fn print_created(cx: &mut Context<'_>, mut items: Items<'_>) -> Printed {
    if items.u32()? == 0 {
        return Ok(());
    }
    items.print_handle(cx)?;
    if cx.verbose() > 0 {
        print_optional(cx, &mut items)?;
    }
    if cx.verbose() > 1 {
        cx.text(" dir attr:");
        print_change(cx, &mut items)?;
    }
    Ok(())
}

fn print_space(cx: &mut Context<'_>, items: Items<'_>) -> Printed {
    let mut items = Items {
        span: {
            items.span.need(52)?;
            items.span
        },
        ..items
    };
    for name in ["tbytes", "fbytes", "abytes"] {
        put!(cx, " {name} {}", items.u64()?);
    }
    if cx.verbose() > 0 {
        for name in ["tfiles", "ffiles", "afiles"] {
            put!(cx, " {name} {}", items.u64()?);
        }
        put!(cx, " invar {}", items.u32()?);
    }
    Ok(())
}

/// Read: maximum, preferred, multiple; write: the same; directory: preferred; largest file 8, time delta 8, properties.
fn print_limits(cx: &mut Context<'_>, items: Items<'_>) -> Printed {
    let fields = items.span;
    fields.need(48)?;
    put!(cx, " rtmax {} rtpref {}", fields.u32(0)?, fields.u32(4)?);
    put!(cx, " wtmax {} wtpref {} dtpref {}", fields.u32(12)?, fields.u32(16)?, fields.u32(24)?);
    if cx.verbose() > 0 {
        put!(cx, " rtmult {} wtmult {} maxfsz {}", fields.u32(8)?, fields.u32(20)?, fields.u64(28)?);
        put!(cx, " delta {}.{:06} ", fields.u32(36)?, fields.u32(40)?);
    }
    Ok(())
}

fn print_path_limits(cx: &mut Context<'_>, items: Items<'_>) -> Printed {
    let fields = items.span;
    fields.need(24)?;
    put!(cx, " linkmax {} namemax {}", fields.u32(0)?, fields.u32(4)?);
    for (name, at) in [("notrunc", 8), ("chownres", 12), ("igncase", 16), ("keepcase", 20)] {
        put!(cx, " {}", if fields.u32(at)? != 0 { name } else { "" });
    }
    Ok(())
}
