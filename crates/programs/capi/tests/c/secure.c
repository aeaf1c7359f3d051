/*
 * A live handle, opened with whatever rights this file's mode gives. argv: the device.
 */
#include <sys/auxv.h>

#include <pcap.h>

int main(int argc, char **argv) {
    char errbuf[PCAP_ERRBUF_SIZE] = "";
    if (argc < 2) return 2;
    printf("secure %d\n", getauxval(AT_SECURE) != 0);
    pcap_t *p = pcap_open_live(argv[1], 100, 0, 10, errbuf);
    printf("%s [%s]\n", p ? "opened" : "not opened", errbuf);
    if (p) pcap_close(p);
    return 0;
}
