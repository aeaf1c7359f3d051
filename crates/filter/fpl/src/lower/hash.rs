//! `HASH` in the form: straight code where the length is constant and small, a loop elsewhere. See [`crate::hash`].

use super::Lowerer;
use crate::hash::{A, B, C};
use crate::tree::Expr;
use tapline_ir::{
    Binary, BlockId, ByteOrder, Comparison, Op, PacketOffset, Target, Terminator, Type, Value, Width,
};

/// The longest stretch that is hashed by straight code, in bytes.
const STRAIGHT_MAX: u32 = 64;

impl Lowerer<'_> {
    pub(super) fn hash(&mut self, [start, len, mask]: &[Expr; 3]) -> Value {
        let short = len.constant().and_then(|len| u32::try_from(len).ok()).filter(|len| *len <= STRAIGHT_MAX);
        let place = short.map(|_| self.place(start));
        let hash = match (place, short) {
            (Some(place), Some(len)) if place.offset.checked_add(len).is_some() => {
                self.hash_straight(place, len)
            }
            _ => self.hash_any(start, len),
        };
        let mask = self.wide(mask);
        self.builder.binary(Binary::And, hash, mask)
    }

    fn hash_straight(&mut self, place: PacketOffset, len: u32) -> Value {
        self.builder.require_bytes(PacketOffset { offset: place.offset + len, ..place });
        let first = self.options.hash_seed ^ u64::from(len).wrapping_mul(A);
        let mut hash = self.builder.const64(first);
        let mut at = 0;
        while at < len {
            let taken = (len - at).min(8);
            let word = self.little_endian(PacketOffset { offset: place.offset + at, ..place }, taken);
            hash = self.mix(hash, word);
            at += taken;
        }
        self.finish_hash(hash)
    }

    /// Up to 8 bytes, which have been shown to be there.
    fn little_endian(&mut self, place: PacketOffset, bytes: u32) -> Value {
        let mut word = None;
        let mut at = 0;
        for width in [Width::Double, Width::Word, Width::Half, Width::Byte] {
            if bytes - at < width.bytes() {
                continue;
            }
            let place = PacketOffset { offset: place.offset + at, ..place };
            let part = self.builder.push(Op::Load(place, width, ByteOrder::Little), width.ty());
            let part = self.builder.extend(part);
            word = Some(match word {
                Some(word) => self.join_parts(word, part, at),
                None => part,
            });
            at += width.bytes();
        }
        word.unwrap_or(self.length)
    }

    fn join_parts(&mut self, low: Value, high: Value, bytes: u32) -> Value {
        let shift = self.builder.const64(u64::from(bytes * 8));
        let high = self.builder.binary(Binary::Shl, high, shift);
        self.builder.binary(Binary::Or, low, high)
    }

    fn mix(&mut self, hash: Value, word: Value) -> Value {
        let mixed = self.builder.binary(Binary::Xor, hash, word);
        self.multiply_and_fold(mixed, B, 32)
    }

    fn finish_hash(&mut self, hash: Value) -> Value {
        self.multiply_and_fold(hash, C, 29)
    }

    fn multiply_and_fold(&mut self, value: Value, by: u64, shift: u64) -> Value {
        let by = self.builder.const64(by);
        let product = self.builder.binary(Binary::Mul, value, by);
        let shift = self.builder.const64(shift);
        let high = self.builder.binary(Binary::Shr, product, shift);
        self.builder.binary(Binary::Xor, product, high)
    }

    /// Any stretch: whole words in one loop, the last bytes in another.
    fn hash_any(&mut self, start: &Expr, len: &Expr) -> Value {
        let (start, len) = (self.wide(start), self.wide(len));
        let end = self.end_of_stretch(start, len);
        let a = self.builder.const64(A);
        let seed = self.builder.const64(self.options.hash_seed);
        let product = self.builder.binary(Binary::Mul, len, a);
        let first = self.builder.binary(Binary::Xor, seed, product);
        let seven = self.builder.const64(7);
        let odd = self.builder.binary(Binary::And, len, seven);
        let words_end = self.builder.binary(Binary::Sub, end, odd);
        let words_max = u64::from(self.options.packet_len_max / 8);
        let hash =
            self.stretch_loop(start, words_end, Width::Double, words_max, first, |lowerer, hash, word, _| {
                lowerer.mix(hash, word)
            });
        let zero = self.builder.const64(0);
        let tail = self.stretch_loop(words_end, end, Width::Byte, 7, zero, |lowerer, tail, byte, at| {
            let distance = lowerer.builder.binary(Binary::Sub, at, words_end);
            let three = lowerer.builder.const64(3);
            let shift = lowerer.builder.binary(Binary::Shl, distance, three);
            let byte = lowerer.builder.binary(Binary::Shl, byte, shift);
            lowerer.builder.binary(Binary::Or, tail, byte)
        });
        let hash = self.mix_if(odd, hash, tail);
        self.finish_hash(hash)
    }

    /// The end of the stretch; rejects the packet if that is behind its end.
    fn end_of_stretch(&mut self, start: Value, len: Value) -> Value {
        // Both are shown to be small first, so that their sum does not wrap.
        self.builder.require_bytes(PacketOffset::from(start, 0));
        let longest = self.builder.const64(self.options.packet_len_max.into());
        let is_short = self.builder.compare(Comparison::GreaterEqual, longest, len);
        self.builder.push(Op::NonZero(is_short), Type::None);
        let end = self.builder.binary(Binary::Add, start, len);
        self.builder.require_bytes(PacketOffset::from(end, 0));
        end
    }

    /// Folds the bytes from `start` to `end`, a width at a time, into a number.
    fn stretch_loop(
        &mut self,
        start: Value,
        end: Value,
        width: Width,
        rounds_max: u64,
        first: Value,
        fold: impl FnOnce(&mut Self, Value, Value, Value) -> Value,
    ) -> Value {
        let (body, after) = (self.builder.block(), self.builder.block());
        self.stretch_round(start, end, first, [body, after]);
        let at = self.builder.parameter(body, Type::U64);
        let folded = self.builder.parameter(body, Type::U64);
        self.builder.switch_to(body);
        self.builder.require_bytes(PacketOffset::from(at, width.bytes()));
        let part =
            self.builder.push(Op::Load(PacketOffset::from(at, 0), width, ByteOrder::Little), width.ty());
        let part = self.builder.extend(part);
        let next = fold(self, folded, part, at);
        let size = self.builder.const64(width.bytes().into());
        let onward = self.builder.binary(Binary::Add, at, size);
        self.stretch_round(onward, end, next, [body, after]);
        self.builder.declare_loop(body, rounds_max);
        let folded = self.builder.parameter(after, Type::U64);
        self.builder.switch_to(after);
        folded
    }

    /// Another round where something is left.
    fn stretch_round(&mut self, at: Value, end: Value, folded: Value, [body, after]: [BlockId; 2]) {
        self.builder.finish(Terminator::Branch {
            test: Comparison::Greater,
            left: end,
            right: at,
            yes: Target { block: body, arguments: vec![at, folded] },
            no: Target { block: after, arguments: vec![folded] },
        });
    }

    fn go_with(&mut self, block: BlockId, arguments: Vec<Value>) {
        self.builder.finish(Terminator::Goto(Target { block, arguments }));
    }

    fn mix_if(&mut self, there: Value, hash: Value, word: Value) -> Value {
        let (yes, join) = (self.builder.block(), self.builder.block());
        let zero = self.builder.const64(0);
        let skip = Target { block: join, arguments: vec![hash] };
        let (left, right) = (there, zero);
        self.builder.finish(Terminator::Branch {
            test: Comparison::Equal,
            left,
            right,
            yes: skip,
            no: Target::to(yes),
        });
        self.builder.switch_to(yes);
        let mixed = self.mix(hash, word);
        self.go_with(join, vec![mixed]);
        self.builder.switch_to(join);
        self.builder.parameter(join, Type::U64)
    }
}
