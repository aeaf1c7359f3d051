/* The position of a savefile that is written: `dump SEED CAPTURE FOLDER` opens a file in the three ways there are, writes packets of the
 * capture to it, moves its stream by chance, but as the seed says, and prints where it stands and what the file then holds. */
#include <pcap/pcap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static unsigned chance(unsigned below) {
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state >> 20) % below;
}

static void contents(const char *name) {
	unsigned value = 5381;
	long len = 0;
	int byte;
	FILE *file = fopen(name, "rb");
	while (file != NULL && (byte = getc(file)) != EOF) {
		value = value * 33 + (unsigned)byte;
		len++;
	}
	printf("file %ld %08x\n", len, value);
	if (file != NULL)
		fclose(file);
}

static pcap_dumper_t *dump_open(pcap_t *p, const char *name, unsigned how) {
	if (how == 0)
		return pcap_dump_open(p, name);
	if (how == 1)
		return pcap_dump_open_append(p, name);
	FILE *file = fopen(name, chance(2) ? "w+b" : "ab");
	if (file == NULL)
		exit(3);
	/* Something of the program's own before it. */
	fwrite("xy", 1, 2 * chance(2), file);
	return pcap_dump_fopen(p, file);
}

static void write_packet(pcap_t *p, pcap_dumper_t *dumper) {
	FILE *file = pcap_dump_file(dumper);
	struct pcap_pkthdr *header;
	const unsigned char *data;
	int result = pcap_next_ex(p, &header, &data);
	printf("next %d", result);
	if (result == 1)
		pcap_dump((unsigned char *)dumper, header, data);
	printf(" at %ld %lld", pcap_dump_ftell(dumper), (long long)pcap_dump_ftell64(dumper));
	switch (chance(6)) {
	case 0:
		printf(" flush %d", pcap_dump_flush(dumper));
		break;
	case 1:
		printf(" seek %d", fseek(file, 24 + (long)chance(100), SEEK_SET));
		break;
	case 2:
		fputc('z', file);
		break;
	case 3:
		printf(" end %d", fseek(file, 0, SEEK_END));
	}
	printf(" at %ld error %d\n", ftell(file), ferror(file) != 0);
}

/* The result of appending to a file that begins with each of these, cut to this many bytes. */
static void beginnings(const char *name) {
	static const uint32_t magics[] = {0xa1b2c3d4, 0xa1b23c4d, 0xa1b2cd34, 0xa12b3c4d, 0xa1b234cd, 0x0a0d0d0a, 0x12345678};
	pcap_t *p = pcap_open_dead(1, 100);
	for (unsigned which = 0; which < 2 * sizeof magics / sizeof *magics; which++) {
		uint32_t magic = magics[which / 2];
		uint32_t words[] = {which % 2 ? __builtin_bswap32(magic) : magic, 0, 0, 0, 100, 1};
		((uint16_t *)&words[1])[0] = 2;
		((uint16_t *)&words[1])[1] = 4;
		for (size_t len = sizeof words; len > 4; len -= 10) {
			/* A new one: to cut an old one makes some file systems wait for the disk. */
			remove(name);
			FILE *file = fopen(name, "wb");
			fwrite(words, 1, len, file);
			fclose(file);
			pcap_dumper_t *dumper = pcap_dump_open_append(p, name);
			const char *error = dumper == NULL ? strrchr(pcap_geterr(p), ':') : NULL;
			printf("%08x %zu%s\n", words[0], len, error == NULL ? "" : error);
			if (dumper != NULL)
				pcap_dump_close(dumper);
		}
	}
	pcap_close(p);
}

int main(int count, char **arguments) {
	char error[PCAP_ERRBUF_SIZE], name[4096];
	if (count != 4)
		return 2;
	state = 88172645463325252ull ^ (strtoull(arguments[1], NULL, 10) * 0x9e3779b97f4a7c15ull);
	pcap_t *p = pcap_open_offline(arguments[2], error);
	if (p == NULL)
		return puts(error), 0;
	snprintf(name, sizeof name, "%s/dump", arguments[3]);
	remove(name);
	for (int round = 0; round < 6; round++) {
		unsigned how = chance(3);
		pcap_dumper_t *dumper = dump_open(p, name, how);
		printf("how %u opened %d", how, dumper != NULL);
		if (dumper == NULL) {
			const char *text = strrchr(pcap_geterr(p), ':');
			printf("%s\n", text == NULL ? "" : text);
			continue;
		}
		printf(" at %ld\n", pcap_dump_ftell(dumper));
		for (int packet = 0; packet < 10; packet++)
			write_packet(p, dumper);
		pcap_dump_close(dumper);
		contents(name);
	}
	pcap_close(p);
	beginnings(name);
	return 0;
}
