//! The headers that lead to a flow.

use super::*;

const TAGS_MAX: usize = 4;
const LABELS_MAX: usize = 6;
const EXTENSIONS_MAX: usize = 4;

const IPV4: i32 = in_memory(0x0800);
const IPV6: i32 = in_memory(0x86dd);
const TAGS: [i32; 2] = [in_memory(0x8100), in_memory(0x88a8)];
const MPLS: [i32; 2] = [in_memory(0x8847), in_memory(0x8848)];
const PPPOE: i32 = in_memory(0x8864);
/// Ethernet in GRE, PPP in GRE (RFC 2637).
const BRIDGED: i32 = in_memory(0x6558);
const PPP: i32 = in_memory(0x880b);
const PPP_IPV4: i32 = in_memory(0x0021);
const PPP_IPV6: i32 = in_memory(0x0057);

/// TCP, UDP, SCTP, UDP-Lite, DCCP; and ESP, whose index takes the place of ports.
const WITH_PORTS: [i32; 6] = [6, 17, 132, 136, 33, 50];
const AUTHENTICATION: i32 = 51;
const IPV4_INSIDE: i32 = 4;
const IPV6_INSIDE: i32 = 41;
const GRE: i32 = 47;
const MPLS_INSIDE: i32 = 137;
/// Hop-by-hop options, routing, destination options.
const OPTIONS: [i32; 3] = [0, 43, 60];
const FRAGMENT_HEADER: i32 = 44;

impl Dissector {
    pub(super) fn frame(&mut self, depth: Depth) {
        self.label(depth.frame);
        let untagged = self.fresh();
        for _ in 0..TAGS_MAX {
            self.jump_if(JEQ, R7, IPV4, depth.v4);
            self.jump_if(JEQ, R7, IPV6, depth.v6);
            let tagged = self.fresh();
            self.jump_if_one_of(R7, &TAGS, tagged);
            self.jump(untagged);
            self.label(tagged);
            self.copy_header(4, depth.otherwise);
            self.load(HALF, R7, 2);
            self.skip(4);
        }
        self.label(untagged);
        let (pppoe, mpls) = (self.fresh(), self.fresh());
        self.jump_if(JEQ, R7, IPV4, depth.v4);
        self.jump_if(JEQ, R7, IPV6, depth.v6);
        self.jump_if(JEQ, R7, PPPOE, pppoe);
        self.jump_if_one_of(R7, &MPLS, mpls);
        self.jump(depth.otherwise);
        self.label(pppoe);
        self.copy_header(8, depth.otherwise);
        self.load(HALF, R1, 6);
        self.skip(8);
        self.ppp(depth, depth.otherwise);
        self.label(mpls);
        self.mpls(depth);
    }

    /// The protocol of PPP in r1.
    fn ppp(&mut self, depth: Depth, otherwise: Label) {
        self.jump_if(JEQ, R1, PPP_IPV4, depth.v4);
        self.jump_if(JEQ, R1, PPP_IPV6, depth.v6);
        self.jump(otherwise);
    }

    /// Labels up to the bottom of the stack; behind it the version of IP is the only hint (RFC 4928).
    fn mpls(&mut self, depth: Depth) {
        let bottom = self.fresh();
        for _ in 0..LABELS_MAX {
            self.copy_header(4, depth.otherwise);
            self.skip(4);
            self.load(BYTE, R1, 2);
            self.jump_if(JSET, R1, 1, bottom);
        }
        self.jump(depth.otherwise);
        self.label(bottom);
        self.copy_header(1, depth.otherwise);
        self.load(BYTE, R1, 0);
        self.push(Insn::alu_immediate(AND, false, R1, 0xf0));
        self.jump_if(JEQ, R1, 0x40, depth.v4);
        self.jump_if(JEQ, R1, 0x60, depth.v6);
        self.jump(depth.otherwise);
    }

    pub(super) fn v4(&mut self, depth: Depth, common: Common) {
        self.label(depth.v4);
        self.copy_header(20, depth.otherwise);
        self.load(BYTE, R1, 0);
        self.push(Insn::alu_immediate(AND, false, R1, 15));
        self.jump_if(JLT, R1, 5, depth.otherwise);
        self.push_all([Insn::alu_immediate(LSH, false, R1, 2), Insn::alu_register(ADD, true, R8, R1)]);
        self.load(BYTE, R9, 9);
        for (at, side) in [12, 16].into_iter().zip(SIDES) {
            self.load(WORD, R1, at);
            // Ports are added.
            self.push_all([Insn::alu_immediate(LSH, true, R1, 16), Insn::store(FRAME, R1, side)]);
        }
        // Three flags, the last of which is "more fragments", and 13 bits of offset.
        self.load_half(R5, 6);
        let fragment = self.fresh();
        self.jump_if(JSET, R5, 0x3fff, fragment);
        self.jump(depth.transport);
        self.label(fragment);
        self.load(HALF, R3, 4);
        self.push_all([Insn::copy(R2, R9), Insn::alu_immediate(OR, true, R2, KIND_V4)]);
        self.key();
        self.jump_if(JSET, R5, 0x1fff, common.later);
        self.first_fragment();
        self.jump(depth.transport);
    }

    pub(super) fn v6(&mut self, depth: Depth, common: Common) {
        self.label(depth.v6);
        self.copy_header(40, depth.otherwise);
        self.load(BYTE, R9, 6);
        for (at, side) in [8, 24].into_iter().zip(SIDES) {
            self.load(DOUBLE, R1, at);
            self.mix_with_seed(R1);
            self.load(DOUBLE, R2, at + 8);
            self.push(Insn::alu_register(ADD, true, R1, R2));
            self.mix_with_seed(R1);
            self.push(Insn::store(FRAME, R1, side));
        }
        self.skip(40);
        for _ in 0..EXTENSIONS_MAX {
            let (options, fragment, next) = (self.fresh(), self.fresh(), self.fresh());
            self.jump_if_one_of(R9, &OPTIONS, options);
            self.jump_if(JEQ, R9, FRAGMENT_HEADER, fragment);
            self.jump(depth.transport);
            self.label(options);
            self.copy_header(2, common.addresses);
            self.load(BYTE, R9, 0);
            self.load(BYTE, R1, 1);
            // In units of 8 bytes, the first of which is not counted.
            self.push_all([
                Insn::alu_immediate(ADD, false, R1, 1),
                Insn::alu_immediate(LSH, false, R1, 3),
                Insn::alu_register(ADD, true, R8, R1),
            ]);
            self.jump(next);
            self.label(fragment);
            self.fragment_header(common);
            self.label(next);
        }
        // What follows the last one is looked at, whatever it is.
    }

    /// The fragment header of IPv6; the label of what follows must come next.
    fn fragment_header(&mut self, common: Common) {
        let (first, whole) = (self.fresh(), self.fresh());
        self.copy_header(8, common.addresses);
        self.load(BYTE, R9, 0);
        self.load(WORD, R3, 4);
        // 13 bits of offset, two reserved ones, and "more fragments" (RFC 8200, 4.5).
        self.load_half(R5, 2);
        self.skip(8);
        self.push(Insn::set(R2, KIND_V6));
        self.key();
        self.jump_if(JSET, R5, 0xfff8, common.later);
        self.jump_if(JSET, R5, 1, first);
        self.jump(whole);
        self.label(first);
        self.first_fragment();
        self.label(whole);
    }

    /// Writes a key: the identification is in r3, the kind in r2.
    fn key(&mut self) {
        for (word, side) in KEY_WORDS.into_iter().zip(SIDES) {
            self.push_all([Insn::load(DOUBLE, R1, FRAME, side), Insn::store(FRAME, R1, KEY + word)]);
        }
        self.push_all([
            Insn::store_word(FRAME, R3, KEY + KEY_ID),
            Insn::store_word(FRAME, R2, KEY + KEY_KIND),
        ]);
    }

    /// Keeps the key until the hash is known, unless a packet around this one is a first fragment itself.
    fn first_fragment(&mut self) {
        let known = self.fresh();
        self.push(Insn::load(WORD, R1, FRAME, NOTED + KEY_KIND));
        self.jump_if(JNE, R1, 0, known);
        for word in KEY_WORDS {
            self.push_all([Insn::load(DOUBLE, R1, FRAME, KEY + word), Insn::store(FRAME, R1, NOTED + word)]);
        }
        self.label(known);
    }

    pub(super) fn transport(&mut self, depth: Depth, inner: Option<&Depth>, common: Common) {
        let authentication = self.fresh();
        self.label(depth.transport);
        self.jump_if_one_of(R9, &WITH_PORTS, common.ports);
        self.jump_if(JEQ, R9, AUTHENTICATION, authentication);
        match inner {
            Some(&inner) => self.tunnels(inner, common),
            None => self.jump(common.addresses),
        }
        // Its index takes the place of ports.
        self.label(authentication);
        self.skip(4);
        self.jump(common.ports);
    }

    fn tunnels(&mut self, inner: Depth, common: Common) {
        let (gre, mpls) = (self.fresh(), self.fresh());
        self.jump_if(JEQ, R9, GRE, gre);
        self.jump_if(JEQ, R9, IPV4_INSIDE, inner.v4);
        self.jump_if(JEQ, R9, IPV6_INSIDE, inner.v6);
        self.jump_if(JEQ, R9, MPLS_INSIDE, mpls);
        self.jump(common.addresses);
        self.label(mpls);
        self.push(Insn::set(R7, MPLS[0] as u32));
        self.jump(inner.frame);
        self.label(gre);
        self.gre(inner, common);
    }

    /// GRE (RFC 2784, RFC 2890) and that of PPTP (RFC 2637), neither with a route.
    fn gre(&mut self, inner: Depth, common: Common) {
        const CHECKSUM: i32 = 0x8000;
        const ROUTE: i32 = 0x4000;
        const WITH_KEY: i32 = 0x2000;
        const SEQUENCE: i32 = 0x1000;
        const ACKNOWLEDGMENT: i32 = 0x0080;
        const VERSION: i32 = 0x0007;
        let (pptp, bridged) = (self.fresh(), self.fresh());
        self.copy_header(4, common.addresses);
        self.load_half(R5, 0);
        self.load(HALF, R7, 2);
        self.jump_if(JSET, R5, ROUTE, common.addresses);
        self.skip(4);
        [CHECKSUM, WITH_KEY, SEQUENCE].into_iter().for_each(|flag| self.skip_word_if(flag));
        self.push_all([Insn::copy(R1, R5), Insn::alu_immediate(AND, false, R1, VERSION)]);
        self.jump_if(JEQ, R1, 1, pptp);
        self.jump_if(JNE, R1, 0, common.addresses);
        self.jump_if(JEQ, R7, BRIDGED, bridged);
        self.jump(inner.frame);
        self.label(bridged);
        self.skip(12);
        self.copy_header(2, common.addresses);
        self.load(HALF, R7, 0);
        self.skip(2);
        self.jump(inner.frame);
        self.label(pptp);
        self.jump_if(JNE, R7, PPP, common.addresses);
        self.skip_word_if(ACKNOWLEDGMENT);
        self.copy_header(4, common.addresses);
        self.load(HALF, R1, 2);
        self.skip(4);
        self.ppp(inner, common.addresses);
    }

    /// Skips four bytes if a flag of r5 is set.
    fn skip_word_if(&mut self, flag: i32) {
        let distance = flag.ilog2() as i32 - 2;
        self.push_all([
            Insn::copy(R1, R5),
            Insn::alu_immediate(RSH, false, R1, distance),
            Insn::alu_immediate(AND, false, R1, 4),
            Insn::alu_register(ADD, true, R8, R1),
        ]);
    }
}
