//! Headers that will soon be read are fetched into the first cache while earlier packets are filtered.
//!
//! ```text
//! generated:    call fetch(address)            e8 and a distance (x86-64), bl (aarch64): keeps all registers, gives nothing
//! in its place: prefetcht0 20(%rdi)            x86-64, 5 bytes
//!               prfm pldl1keep, [x0, 24]       aarch64, 4 bytes
//! ```
//!
//! The generator has no such instruction. It has calls that are meant to be replaced in its output, with their
//! address in the first register of the system's calling convention; one instruction of the same length fits there.
//! To fetch never faults, whatever the address.
//!
//! The reason: a filter's branches wait for the header. If they were guessed wrong and the header is in the third
//! cache, the processor finds that out much later, and discards the work that it had under way by then.

use cranelift_codegen::CompiledCode;
use cranelift_codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, FuncRef, InstBuilder, Signature, UserExternalName, Value, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::FunctionBuilder;

/// The instruction that fetches the line of a byte about 20 behind the address in the first register: most fields
/// that filters read are from the EtherType to the ports, bytes 12 to 38.
const INSTRUCTION: &[u8] = if cfg!(target_arch = "aarch64") {
    // PRFM (immediate): 0xf9800000 | offset / 8 << 10 | register << 5 | PLDL1KEEP (Arm ARM, C6.2).
    &[0x00, 0x0c, 0x80, 0xf9]
} else {
    // PREFETCHT0: 0f 18 /1, here with a base register and a distance of one byte (Intel SDM, volume 2).
    &[0x0f, 0x18, 0x4c, 0x27, 20]
};

/// The instruction's form in listings.
const TEXT: &str =
    if cfg!(target_arch = "aarch64") { "prfm pldl1keep, [x0, #24]" } else { "prefetcht0 0x14(%rdi)" };

/// The generator's form of the call.
const CALL: &str = "userextname0";

/// Fetches the line of the header that begins at `address`.
pub(super) fn fetch(builder: &mut FunctionBuilder<'_>, address: Value) {
    let function = declared(builder);
    builder.ins().call(function, &[address]);
}

/// A function that is never called.
fn declared(builder: &mut FunctionBuilder<'_>) -> FuncRef {
    let mut signature = Signature::new(CallConv::PreserveAll);
    signature.params.push(AbiParam::new(types::I64));
    let signature = builder.import_signature(signature);
    let name = builder.func.declare_imported_user_function(UserExternalName { namespace: 0, index: 0 });
    let name = ExternalName::user(name);
    builder.import_function(ExtFuncData { name, signature, colocated: true, patchable: true })
}

/// The machine code with the instruction in the place of each call. None if it has calls of other kinds that are
/// still open.
pub(super) fn replaced(code: &CompiledCode) -> Option<Vec<u8>> {
    let mut bytes = code.code_buffer().to_vec();
    let mut open = code.buffer.relocs().len();
    for site in code.buffer.patchable_call_sites() {
        let end = site.ret_addr as usize;
        let call = end.checked_sub(INSTRUCTION.len())?..end;
        let is_within = |at: u32| call.contains(&(at as usize));
        open = open.checked_sub(code.buffer.relocs().iter().filter(|one| is_within(one.offset)).count())?;
        bytes.get_mut(call)?.copy_from_slice(INSTRUCTION);
    }
    (open == 0).then_some(bytes)
}

/// Replaces the instruction in a listing.
pub(super) fn replaced_text(listing: &str) -> String {
    let line = |line: &str| if line.contains(CALL) { format!("  {TEXT}\n") } else { format!("{line}\n") };
    listing.lines().map(line).collect()
}
