/* The old name of pcap/namedb.h. Licence: MIT or Apache-2.0. */
#include <pcap/namedb.h>
