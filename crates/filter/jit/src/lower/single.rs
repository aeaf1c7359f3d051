//! The function for one packet.

use cranelift_codegen::ir::{InstBuilder, Signature, types};
use cranelift_frontend::FunctionBuilder;

use super::body::{Accept, Body, Surroundings};
use super::{Source, c_function};

/// `(data, len, meta, memory, cells) -> verdict`: see [`crate::native`].
pub(super) fn signature() -> Signature {
    c_function(&[types::I64; 5], &[types::I64])
}

pub(super) fn lower(source: &Source<'_>, builder: &mut FunctionBuilder<'_>) {
    let entry = builder.create_block();
    let reject = builder.create_block();
    builder.set_cold_block(reject);
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let &[data, len, meta, memory, cells] = builder.block_params(entry) else {
        unreachable!("the signature has five parameters")
    };
    let around = Surroundings { data, len, meta, memory, cells, reject, accept: Accept::Return };
    Body::new(source, builder, around).lower();
    builder.switch_to_block(reject);
    let zero = builder.ins().iconst(types::I64, 0);
    builder.ins().return_(&[zero]);
}
