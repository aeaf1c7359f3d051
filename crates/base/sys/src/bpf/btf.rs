//! The kernel's type information (BTF): numbers of functions that programs may call, names of numbers.
//!
//! ```text
//! /sys/kernel/btf/vmlinux := header types strings                       Documentation/bpf/btf.rst
//! header  := 0xeb9f:u16 version:u8 flags:u8 header_len:u32 types_at:u32 types_len:u32 strings_at:u32 strings_len:u32
//! types   := type*                                                      numbered from 1; places count from the end of the header
//! type    := name_at:u32 info:u32 size_or_type:u32 more                 info := 0 kind:5 0 count:16, from the top; `more` by kind
//! enumeration := (name_at:u32 value:u32)*                                `more` of kind 6
//! structure := (name_at:u32 type:u32 offset:u32)*                        `more` of kinds 4 and 5; offsets in bits, below 24 others
//!                                                                        if bit 31 of info is set
//! strings := (text 0)*
//! ```

use std::{fs, io};

const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const TYPE_LEN: usize = 12;
/// `BTF_KIND_FUNC`.
const FUNCTION: u32 = 12;
/// `BTF_KIND_ENUM`.
const ENUMERATION: u32 = 6;
/// `BTF_KIND_STRUCT` and `BTF_KIND_UNION`.
const STRUCTURES: [u32; 2] = [4, 5];
/// Structures without a name that may be in each other.
const DEPTH_MAX: u32 = 8;

/// The number of each of these functions in the kernel's type information; `None` for one that it does not have.
/// Minimum kernel: 5.4, built with `CONFIG_DEBUG_INFO_BTF`.
///
/// # Errors
/// `ENOENT` on a kernel without type information; else the error of read(2); `InvalidData` if its form is unknown.
pub fn kernel_functions<const N: usize>(names: [&str; N]) -> io::Result<[Option<u32>; N]> {
    let bytes = fs::read(PATH)?;
    find(&bytes, names).ok_or_else(unknown)
}

/// Names and values of an enumeration of the kernel; none if it has no such one. Minimum kernel: as for
/// [`kernel_functions`].
///
/// # Errors
/// As for [`kernel_functions`].
pub fn kernel_enumeration(name: &str) -> io::Result<Vec<(String, u32)>> {
    let bytes = fs::read(PATH)?;
    enumeration(&bytes, name).ok_or_else(unknown)
}

/// Offsets of members in the kernel's structures, in bytes, for pairs (structure, member); `None` for a member that its
/// structure does not have, or that begins within a byte. Members of structures without a name count as those of the
/// structure around them. Minimum kernel: as for [`kernel_functions`].
///
/// # Errors
/// As for [`kernel_functions`].
pub fn kernel_offsets<const N: usize>(members: [(&str, &str); N]) -> io::Result<[Option<u32>; N]> {
    let bytes = fs::read(PATH)?;
    offsets(&bytes, members).ok_or_else(unknown)
}

fn unknown() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{PATH}: no type information that we know"))
}

/// A type: its name, its kind, and the bytes behind the fields that all types have.
#[derive(Clone, Copy)]
struct Type<'a> {
    name: &'a [u8],
    kind: u32,
    /// Bit 31 of `info`.
    has_widths: bool,
    more: &'a [u8],
}

fn find<const N: usize>(bytes: &[u8], names: [&str; N]) -> Option<[Option<u32>; N]> {
    let mut found = [None; N];
    each_type(bytes, |number, one, _| {
        if one.kind == FUNCTION
            && let Some(which) = names.iter().position(|wanted| wanted.as_bytes() == one.name)
        {
            found[which] = Some(number);
        }
        Some(())
    })?;
    Some(found)
}

fn enumeration(bytes: &[u8], wanted: &str) -> Option<Vec<(String, u32)>> {
    let mut found = Vec::new();
    each_type(bytes, |_, one, strings| {
        if one.kind == ENUMERATION && one.name == wanted.as_bytes() {
            for member in one.more.chunks_exact(8) {
                let field = |at: usize| {
                    u32::from_ne_bytes([member[at], member[at + 1], member[at + 2], member[at + 3]])
                };
                let name = text_at(strings, field(0))?;
                found.push((String::from_utf8_lossy(name).into_owned(), field(4)));
            }
        }
        Some(())
    })?;
    Some(found)
}

fn offsets<const N: usize>(bytes: &[u8], wanted: [(&str, &str); N]) -> Option<[Option<u32>; N]> {
    let (mut all, mut strings): (Vec<Option<Type<'_>>>, &[u8]) = (Vec::new(), &[]);
    each_type(bytes, |number, one, texts| {
        if STRUCTURES.contains(&one.kind) {
            all.resize(number as usize, None);
            all.push(Some(one));
        }
        strings = texts;
        Some(())
    })?;
    let offset = |structure: &str, member: &str| {
        let is_it = |number: &usize| all[*number].is_some_and(|one| one.name == structure.as_bytes());
        let mut numbers = (0..all.len()).filter(is_it);
        let bits =
            numbers.find_map(|number| offset_in(&all, strings, number, member.as_bytes(), DEPTH_MAX))?;
        bits.is_multiple_of(8).then_some(bits / 8)
    };
    Some(wanted.map(|(structure, member)| offset(structure, member)))
}

/// The offset of a member in bits, within a structure and those without a name in it.
fn offset_in(
    all: &[Option<Type<'_>>],
    strings: &[u8],
    number: usize,
    wanted: &[u8],
    depth: u32,
) -> Option<u32> {
    let Type { more, has_widths, .. } = all.get(number)?.as_ref()?;
    more.chunks_exact(12).find_map(|member| {
        let field =
            |at: usize| u32::from_ne_bytes([member[at], member[at + 1], member[at + 2], member[at + 3]]);
        let offset = if *has_widths { field(8) & 0xff_ffff } else { field(8) };
        match text_at(strings, field(0))? {
            name if name == wanted => Some(offset),
            [] if depth > 0 => {
                let inside = offset_in(all, strings, field(4) as usize, wanted, depth - 1)?;
                offset.checked_add(inside)
            }
            _ => None,
        }
    })
}

fn text_at(strings: &[u8], at: u32) -> Option<&[u8]> {
    let text = strings.get(at as usize..)?;
    Some(&text[..text.iter().position(|&byte| byte == 0)?])
}

/// Calls `visit` with each type, its number and the strings. `None` for unknown data.
fn each_type<'b>(
    bytes: &'b [u8],
    mut visit: impl FnMut(u32, Type<'b>, &'b [u8]) -> Option<()>,
) -> Option<()> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
    if bytes.get(..2)? != MAGIC.to_ne_bytes() {
        return None;
    }
    let header_len = word(4)? as usize;
    let section = |at: usize| {
        let start = header_len.checked_add(word(at)? as usize)?;
        bytes.get(start..start.checked_add(word(at + 4)? as usize)?)
    };
    let (mut types, strings) = (section(8)?, section(16)?);
    let mut number = 0;
    while let Some((head, rest)) = types.split_first_chunk::<TYPE_LEN>() {
        number += 1;
        let field = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (kind, count) = (field(4) >> 24 & 0x1f, field(4) as usize & 0xffff);
        let (more, rest) = rest.split_at_checked(more_len(kind, count)?)?;
        if matches!(kind, FUNCTION | ENUMERATION) || STRUCTURES.contains(&kind) {
            let has_widths = field(4) >> 31 != 0;
            visit(number, Type { name: text_at(strings, field(0))?, kind, has_widths, more }, strings)?;
        }
        types = rest;
    }
    Some(())
}

/// Bytes behind the fields that all types have; `None` for a kind that we do not know.
fn more_len(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // Pointer, forward, typedef, volatile, const, restrict, function, float, tag of a type.
        2 | 7..=12 | 16 | 18 => 0,
        // Integer, variable, tag of a declaration.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Enumeration, prototype.
        6 | 13 => count * 8,
        // Structure, union, section, enumeration of 64 bits.
        4 | 5 | 15 | 19 => count * 12,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information with these types, (name, kind, count), and functions' names.
    fn information(types: &[(&str, u32, usize)]) -> Vec<u8> {
        let (mut body, mut strings) = (Vec::new(), vec![0]);
        for &(name, kind, count) in types {
            body.extend((strings.len() as u32).to_ne_bytes());
            strings.extend(name.bytes().chain([0]));
            body.extend((kind << 24 | count as u32).to_ne_bytes());
            body.extend(vec![0; 4 + more_len(kind, count).unwrap_or(0)]);
        }
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, body.len(), body.len(), strings.len()] {
            bytes.extend((word as u32).to_ne_bytes());
        }
        [bytes, body, strings].concat()
    }

    #[test]
    fn functions_are_found_behind_types_of_each_kind() {
        let kinds = (1..=19).filter(|kind| *kind != FUNCTION).map(|kind| ("wanted", kind, 3));
        let types: Vec<_> = kinds.chain([("other", FUNCTION, 1), ("wanted", FUNCTION, 1)]).collect();
        let bytes = information(&types);
        assert_eq!(find(&bytes, ["wanted", "absent"]), Some([Some(types.len() as u32), None]));
        assert_eq!(find(&information(&[("x", 31, 1)]), ["x"]), None, "a kind of a later kernel");
        for len in 0..bytes.len() {
            // Cut anywhere it is less or nothing, and never a wrong number.
            assert!(find(&bytes[..len], ["wanted"]).is_none_or(|found| found == [None]), "{len}");
        }
    }

    #[test]
    fn enumerations_have_names_and_values() {
        let bytes = information(&[("colour", ENUMERATION, 2), ("other", ENUMERATION, 1)]);
        // Members name the empty text, as their bytes are zeros.
        assert_eq!(enumeration(&bytes, "colour"), Some(vec![(String::new(), 0); 2]));
        assert_eq!(enumeration(&bytes, "absent"), Some(Vec::new()));
        match kernel_enumeration("skb_drop_reason") {
            Ok(reasons) => {
                assert!(reasons.is_empty() || reasons.iter().any(|(name, _)| name.ends_with("_NO_SOCKET")))
            }
            Err(error) => eprintln!("skipped: enumerations_have_names_and_values: {error}"),
        }
    }

    #[test]
    fn members_have_offsets_in_this_kernel() {
        let members = ["next", "len", "network_header", "head", "absent"].map(|member| ("sk_buff", member));
        match kernel_offsets(members) {
            Ok([next, len, network_header, head, absent]) => {
                // The first member, in a union without a name.
                assert_eq!((next, absent), (Some(0), None));
                assert!(
                    len > next && head > len && network_header > len,
                    "{len:?} {network_header:?} {head:?}"
                );
            }
            Err(error) => eprintln!("skipped: members_have_offsets_in_this_kernel: {error}"),
        }
    }

    #[test]
    fn this_kernels_functions_have_numbers() {
        let name = "bpf_xdp_metadata_rx_timestamp";
        match kernel_functions([name, "no_such_function"]) {
            Ok([number, absent]) => {
                assert_eq!(absent, None);
                let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
                let is_there = symbols.lines().any(|line| line.ends_with(&format!(" T {name}")));
                assert!(number.is_some() || !is_there, "it is in kallsyms");
            }
            Err(error) => eprintln!("skipped: this_kernels_functions_have_numbers: {error}"),
        }
    }
}
