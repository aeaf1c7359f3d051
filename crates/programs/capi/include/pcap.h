/* The header that programs include. Licence: MIT or Apache-2.0. */
#include <pcap/pcap.h>
