/* The position of a savefile's stream: `position HOW SEED STEPS FILE` does by chance, but as the seed says, what a program may do with a
 * savefile and its stream, and prints what came of it.
 *
 * HOW: open (pcap_open_offline; the stream is asked for after some packets), fopen (pcap_fopen_offline), stdin (the savefile is standard
 * input, which FILE only names). With "-wild" behind it the stream is also moved to places where no packet begins; as what is found there
 * is no packet, only numbers that both libraries must agree on are printed.
 *
 * HOW: rest-open, rest-fopen: reads STEPS packets of standard input, then what its stream still has, by itself. memory: reads all packets and
 * prints how much memory that took. */
#include <pcap/pcap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACES 64

static uint64_t state;
static int is_wild;
static pcap_t *p;
static FILE *stream;
static long places[PLACES];
static unsigned known;
static int moves_in_callback;

static unsigned chance(unsigned below) {
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state >> 20) % below;
}

static unsigned hash(const unsigned char *data, unsigned len) {
	unsigned value = 5381;
	while (len-- > 0)
		value = value * 33 + *data++;
	return value;
}

static void tell(void) {
	if (stream == NULL)
		return;
	long at = ftell(stream);
	printf(" at %ld", at);
	if (at >= 0)
		places[known++ % PLACES] = at;
}

static void show(const struct pcap_pkthdr *header, const unsigned char *data) {
	printf(" %u/%u %08x", header->caplen, header->len, hash(data, header->caplen));
	if (!is_wild)
		printf(" %ld.%06ld", (long)header->ts.tv_sec, (long)header->ts.tv_usec);
}

static void move(void) {
	if (stream == NULL || known == 0)
		return;
	long to = places[chance(known < PLACES ? known : PLACES)];
	printf(" to %ld: %d", to, fseek(stream, to, SEEK_SET));
}

static void on_packet(unsigned char *user, const struct pcap_pkthdr *header, const unsigned char *data) {
	(void)user;
	show(header, data);
	if (chance(4) == 0)
		tell();
	if (moves_in_callback && chance(3) == 0)
		move();
	if (chance(12) == 0) {
		printf(" break");
		pcap_breakloop(p);
	}
	/* What was lent stays until the callback has returned. */
	show(header, data);
}

static void code(int result) {
	printf(" = %d", result);
	if (result == PCAP_ERROR && !is_wild)
		printf(" (%s)", pcap_geterr(p));
}

static void filter(void) {
	static const char *const texts[] = {"", "tcp", "udp", "greater 100", "less 90"};
	struct bpf_program program;
	const char *text = texts[chance(5)];
	printf("filter '%s'", text);
	int result = pcap_compile(p, &program, text, 1, PCAP_NETMASK_UNKNOWN);
	printf(" %d", result);
	if (result == 0) {
		code(pcap_setfilter(p, &program));
		pcap_freecode(&program);
	}
}

static void step(void) {
	struct pcap_pkthdr *header, own;
	const unsigned char *data;
	int result;
	switch (chance(is_wild ? 17 : 15)) {
	case 0: case 1: case 2:
		printf("next_ex");
		result = pcap_next_ex(p, &header, &data);
		code(result);
		if (result == 1) {
			show(header, data);
			tell();
			show(header, data);
		}
		break;
	case 3:
		printf("next");
		data = pcap_next(p, &own);
		if (data != NULL)
			show(&own, data);
		break;
	case 4: case 5:
		printf("dispatch");
		code(pcap_dispatch(p, (int)chance(6), on_packet, NULL));
		break;
	case 6:
		printf("loop");
		code(pcap_loop(p, 1 + (int)chance(5), on_packet, NULL));
		break;
	case 7:
		printf("tell");
		tell();
		break;
	case 8: case 9:
		printf("move");
		move();
		break;
	case 10:
		printf("file");
		if (stream == NULL)
			stream = pcap_file(p);
		tell();
		break;
	case 11:
		if (stream != NULL) {
			printf("eof %d error %d", feof(stream) != 0, ferror(stream) != 0);
			if (chance(2))
				clearerr(stream);
		}
		break;
	case 12:
		if (chance(3) == 0)
			filter();
		break;
	case 13:
		printf("break");
		pcap_breakloop(p);
		break;
	case 14:
		if (stream != NULL) {
			int byte = getc(stream);
			printf("getc %d", byte);
			if (byte != EOF)
				printf(" ungetc %d", ungetc(byte, stream) == byte);
		}
		break;
	case 15:
		if (stream != NULL && known > 0) {
			long to = places[chance(known < PLACES ? known : PLACES)] + (long)chance(200) - 100;
			printf("wild %ld: %d", to, fseek(stream, to, SEEK_SET));
		}
		break;
	default:
		if (stream != NULL) {
			static const int from[] = {SEEK_SET, SEEK_CUR, SEEK_END};
			int way = from[chance(3)];
			long by = (long)chance(3000) - 1000;
			printf("wild %ld from %d: %d", by, way, fseek(stream, by, way));
		}
	}
	tell();
	putchar('\n');
}

static void ignore(unsigned char *user, const struct pcap_pkthdr *header, const unsigned char *data) {
	(void)data;
	*(unsigned long *)user += header->caplen > 0;
}

static int memory(const char *name) {
	char error[PCAP_ERRBUF_SIZE];
	unsigned long packets = 0;
	char line[200];
	p = pcap_open_offline(name, error);
	if (p == NULL || pcap_loop(p, -1, ignore, (unsigned char *)&packets) != 0)
		return 1;
	/* Not getrusage(2), whose peak is that of the process before execve(2) if that was greater. */
	FILE *status = fopen("/proc/self/status", "r");
	while (status != NULL && fgets(line, sizeof line, status) != NULL)
		if (strncmp(line, "VmHWM:", 6) == 0)
			printf("%lu packets, peak %ld\n", packets, atol(line + 6));
	return 0;
}

static int rest(int is_own, int packets) {
	char error[PCAP_ERRBUF_SIZE];
	unsigned long seen = 0;
	unsigned char bytes[64];
	size_t len;
	p = is_own ? pcap_fopen_offline(stdin, error) : pcap_open_offline("-", error);
	if (p == NULL)
		return puts(error), 0;
	stream = is_own ? stdin : pcap_file(p);
	int result = pcap_dispatch(p, packets, ignore, (unsigned char *)&seen);
	printf("%d %lu\n", result, seen);
	while ((len = fread(bytes, 1, sizeof bytes, stream)) > 0)
		printf("%zu %08x\n", len, hash(bytes, (unsigned)len));
	return 0;
}

int main(int count, char **arguments) {
	char error[PCAP_ERRBUF_SIZE] = "";
	if (count != 5)
		return 2;
	const char *how = arguments[1];
	if (strcmp(how, "memory") == 0)
		return memory(arguments[4]);
	if (strncmp(how, "rest", 4) == 0)
		return rest(strcmp(how, "rest-fopen") == 0, atoi(arguments[3]));
	state = 88172645463325252ull ^ (strtoull(arguments[2], NULL, 10) * 0x9e3779b97f4a7c15ull);
	is_wild = strstr(how, "-wild") != NULL;
	moves_in_callback = chance(2);
	if (strncmp(how, "open", 4) == 0) {
		p = pcap_open_offline(arguments[4], error);
	} else {
		FILE *file = strncmp(how, "stdin", 5) == 0 ? stdin : fopen(arguments[4], "rb");
		if (file == NULL)
			return 3;
		p = pcap_fopen_offline(file, error);
		stream = file;
	}
	printf("opened %d %s", p != NULL, error);
	tell();
	putchar('\n');
	if (p == NULL)
		return 0;
	for (int steps = atoi(arguments[3]); steps > 0; steps--)
		step();
	/* The rest, read to its end. */
	for (int steps = 0; steps < 5000 && pcap_dispatch(p, 1, on_packet, NULL) > 0; steps++)
		;
	tell();
	putchar('\n');
	pcap_close(p);
	return 0;
}
