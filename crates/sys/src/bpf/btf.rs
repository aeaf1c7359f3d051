//! Numbers of the kernel's own functions that programs may call, in its type information (BTF).
//!
//! ```text
//! /sys/kernel/btf/vmlinux := header types strings                       Documentation/bpf/btf.rst
//! header  := 0xeb9f:u16 version:u8 flags:u8 header_len:u32 types_at:u32 types_len:u32 strings_at:u32 strings_len:u32
//! types   := type*                                                      numbered from 1; places count from the end of the header
//! type    := name_at:u32 info:u32 size_or_type:u32 more                 info := 0 kind:5 0 count:16, from the top; `more` by kind
//! strings := (text 0)*
//! ```

use std::{fs, io};

const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const TYPE_LEN: usize = 12;
/// `BTF_KIND_FUNC`.
const FUNCTION: u32 = 12;

/// The number of each of these functions in the kernel's type information; `None` for one that it does not have.
/// Minimum kernel: 5.4, built with `CONFIG_DEBUG_INFO_BTF`.
///
/// # Errors
/// `ENOENT` on a kernel without type information; else what read(2) says; `InvalidData` if it is not as we know it.
pub fn kernel_functions<const N: usize>(names: [&str; N]) -> io::Result<[Option<u32>; N]> {
    let bytes = fs::read(PATH)?;
    find(&bytes, names).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{PATH}: no type information that we know"))
    })
}

fn find<const N: usize>(bytes: &[u8], names: [&str; N]) -> Option<[Option<u32>; N]> {
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
    let mut found = [None; N];
    let mut number = 0;
    while let Some((head, rest)) = types.split_first_chunk::<TYPE_LEN>() {
        number += 1;
        let field = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (kind, count) = (field(4) >> 24 & 0x1f, field(4) as usize & 0xffff);
        if kind == FUNCTION {
            let name = strings.get(field(0) as usize..)?;
            let name = &name[..name.iter().position(|&byte| byte == 0)?];
            if let Some(which) = names.iter().position(|wanted| wanted.as_bytes() == name) {
                found[which] = Some(number);
            }
        }
        types = rest.get(more_len(kind, count)?..)?;
    }
    Some(found)
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
