/*
 * Classic BPF: programs and their instructions.
 *
 *   code := class | size | mode        loads                A, X      registers of 32 bits
 *         | class | operation | source arithmetic, jumps    M[0..15]  scratch memory
 *
 * Names and numbers are those of "The BSD Packet Filter" (McCanne and Jacobson, 1993) as libpcap has them.
 * Licence: MIT or Apache-2.0.
 */
#if !defined(_NET_BPF_H_) && !defined(_NET_BPF_H_INCLUDED) && !defined(_BPF_H_) && !defined(_H_BPF) && !defined(lib_pcap_bpf_h)
#define lib_pcap_bpf_h

#include <sys/types.h>

#include <pcap/dlt.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BPF_RELEASE 199606

typedef int bpf_int32;
typedef u_int bpf_u_int32;

#define BPF_ALIGNMENT sizeof(bpf_int32)
#define BPF_WORDALIGN(x) (((x) + (BPF_ALIGNMENT - 1)) & ~(BPF_ALIGNMENT - 1))

struct bpf_insn {
    u_short code;
    u_char jt;
    u_char jf;
    bpf_u_int32 k;
};

struct bpf_program {
    u_int bf_len;
    struct bpf_insn *bf_insns;
};

/* Classes. */
#define BPF_CLASS(code) ((code) & 0x07)
#define BPF_LD   0x00
#define BPF_LDX  0x01
#define BPF_ST   0x02
#define BPF_STX  0x03
#define BPF_ALU  0x04
#define BPF_JMP  0x05
#define BPF_RET  0x06
#define BPF_MISC 0x07

/* Loads: how much, and from where. */
#define BPF_SIZE(code) ((code) & 0x18)
#define BPF_W 0x00
#define BPF_H 0x08
#define BPF_B 0x10
#define BPF_MODE(code) ((code) & 0xe0)
#define BPF_IMM 0x00
#define BPF_ABS 0x20
#define BPF_IND 0x40
#define BPF_MEM 0x60
#define BPF_LEN 0x80
#define BPF_MSH 0xa0

/* Arithmetic and jumps. */
#define BPF_OP(code) ((code) & 0xf0)
#define BPF_ADD 0x00
#define BPF_SUB 0x10
#define BPF_MUL 0x20
#define BPF_DIV 0x30
#define BPF_OR  0x40
#define BPF_AND 0x50
#define BPF_LSH 0x60
#define BPF_RSH 0x70
#define BPF_NEG 0x80
#define BPF_MOD 0x90
#define BPF_XOR 0xa0
#define BPF_JA   0x00
#define BPF_JEQ  0x10
#define BPF_JGT  0x20
#define BPF_JGE  0x30
#define BPF_JSET 0x40
#define BPF_SRC(code) ((code) & 0x08)
#define BPF_K 0x00
#define BPF_X 0x08

/* Returns and moves. */
#define BPF_RVAL(code) ((code) & 0x18)
#define BPF_A 0x10
#define BPF_MISCOP(code) ((code) & 0xf8)
#define BPF_TAX 0x00
#define BPF_TXA 0x80

#define BPF_MEMWORDS 16

#undef BPF_STMT
#define BPF_STMT(code, k) { (u_short)(code), 0, 0, k }
#undef BPF_JUMP
#define BPF_JUMP(code, k, jt, jf) { (u_short)(code), jt, jf, k }

/* The bytes to keep of a packet, 0 to reject it: program, packet, length on the wire, captured length. */
u_int bpf_filter(const struct bpf_insn *, const u_char *, u_int, u_int);
/* Whether a program of this number of instructions may be run. */
int bpf_validate(const struct bpf_insn *, int);
/* An instruction at a position as text, until the thread's next call. */
char *bpf_image(const struct bpf_insn *, int);
/* Prints a program: 1 as text, 2 as C, 3 as numbers. */
void bpf_dump(const struct bpf_program *, int);

#ifdef __cplusplus
}
#endif
#endif
