/*
 * Link types: what the first header of each packet is, as programs know it. Files have LINKTYPE numbers, which are the same but for a few old ones.
 * Made from the table in Tapline's packet/src/link_type.rs; a test compares the numbers. Licence: MIT or Apache-2.0.
 */
#ifndef lib_pcap_dlt_h
#define lib_pcap_dlt_h

#define DLT_NULL                           0 /* BSD loopback */
#define DLT_EN10MB                         1 /* Ethernet */
#define DLT_EN3MB                          2 /* Experimental Ethernet (3 Mb/s) */
#define DLT_AX25                           3 /* AX.25 layer 2 */
#define DLT_PRONET                         4 /* Proteon ProNET token ring */
#define DLT_CHAOS                          5 /* Chaosnet */
#define DLT_IEEE802                        6 /* Token ring */
#define DLT_ARCNET                         7 /* BSD ARCNET */
#define DLT_SLIP                           8 /* SLIP */
#define DLT_PPP                            9 /* PPP */
#define DLT_FDDI                          10 /* FDDI */
#define DLT_ATM_RFC1483                   11 /* RFC 1483 LLC-encapsulated ATM */
#define DLT_RAW                           12 /* Raw IP */
#define DLT_SLIP_BSDOS                    15 /* BSD/OS SLIP */
#define DLT_PPP_BSDOS                     16 /* BSD/OS PPP */
#define DLT_ATM_CLIP                      19 /* Linux Classical IP over ATM */
#define DLT_PPP_SERIAL                    50 /* PPP over serial */
#define DLT_PPP_ETHER                     51 /* PPPoE */
#define DLT_SYMANTEC_FIREWALL             99 /* Symantec Firewall */
#define DLT_C_HDLC                       104 /* Cisco HDLC */
#define DLT_IEEE802_11                   105 /* 802.11 */
#define DLT_FRELAY                       107 /* Frame Relay */
#define DLT_LOOP                         108 /* OpenBSD loopback */
#define DLT_ENC                          109 /* OpenBSD encapsulated IP */
#define DLT_LANE8023                     110 /* ATM LAN emulation, 802.3 */
#define DLT_HIPPI                        111 /* HIPPI */
#define DLT_HDLC                         112 /* NetBSD HDLC framing */
#define DLT_LINUX_SLL                    113 /* Linux cooked v1 */
#define DLT_LTALK                        114 /* Localtalk */
#define DLT_ECONET                       115 /* Acorn Econet */
#define DLT_IPFILTER                     116 /* OpenBSD ipfilter */
#define DLT_PFLOG                        117 /* OpenBSD pflog file */
#define DLT_CISCO_IOS                    118 /* Cisco IOS internal */
#define DLT_PRISM_HEADER                 119 /* 802.11 plus Prism header */
#define DLT_AIRONET_HEADER               120 /* 802.11 plus Aironet header */
#define DLT_HHDLC                        121 /* Siemens HiPath HDLC */
#define DLT_IP_OVER_FC                   122 /* RFC 2625 IP-over-Fibre Channel */
#define DLT_SUNATM                       123 /* Sun raw ATM */
#define DLT_RIO                          124 /* RapidIO */
#define DLT_PCI_EXP                      125 /* PCI Express */
#define DLT_AURORA                       126 /* Xilinx Aurora */
#define DLT_IEEE802_11_RADIO             127 /* 802.11 plus radiotap header */
#define DLT_TZSP                         128 /* Tazmen Sniffer Protocol */
#define DLT_ARCNET_LINUX                 129 /* Linux ARCNET */
#define DLT_JUNIPER_MLPPP                130 /* Juniper Multi-Link PPP */
#define DLT_JUNIPER_MLFR                 131 /* Juniper Multi-Link Frame Relay */
#define DLT_JUNIPER_ES                   132 /* Juniper Encryption Services PIC */
#define DLT_JUNIPER_GGSN                 133 /* Juniper GGSN PIC */
#define DLT_JUNIPER_MFR                  134 /* Juniper FRF.16 Frame Relay */
#define DLT_JUNIPER_ATM2                 135 /* Juniper ATM2 PIC */
#define DLT_JUNIPER_SERVICES             136 /* Juniper Advanced Services PIC */
#define DLT_JUNIPER_ATM1                 137 /* Juniper ATM1 PIC */
#define DLT_APPLE_IP_OVER_IEEE1394       138 /* Apple IP-over-IEEE 1394 */
#define DLT_MTP2_WITH_PHDR               139 /* SS7 MTP2 with Pseudo-header */
#define DLT_MTP2                         140 /* SS7 MTP2 */
#define DLT_MTP3                         141 /* SS7 MTP3 */
#define DLT_SCCP                         142 /* SS7 SCCP */
#define DLT_DOCSIS                       143 /* DOCSIS */
#define DLT_LINUX_IRDA                   144 /* Linux IrDA */
#define DLT_IBM_SP                       145 /* IBM SP switch */
#define DLT_IBM_SN                       146 /* IBM Next Federation switch */
#define DLT_USER0                        147 /* Private use 0 */
#define DLT_USER1                        148 /* Private use 1 */
#define DLT_USER2                        149 /* Private use 2 */
#define DLT_USER3                        150 /* Private use 3 */
#define DLT_USER4                        151 /* Private use 4 */
#define DLT_USER5                        152 /* Private use 5 */
#define DLT_USER6                        153 /* Private use 6 */
#define DLT_USER7                        154 /* Private use 7 */
#define DLT_USER8                        155 /* Private use 8 */
#define DLT_USER9                        156 /* Private use 9 */
#define DLT_USER10                       157 /* Private use 10 */
#define DLT_USER11                       158 /* Private use 11 */
#define DLT_USER12                       159 /* Private use 12 */
#define DLT_USER13                       160 /* Private use 13 */
#define DLT_USER14                       161 /* Private use 14 */
#define DLT_USER15                       162 /* Private use 15 */
#define DLT_IEEE802_11_RADIO_AVS         163 /* 802.11 plus AVS radio information header */
#define DLT_JUNIPER_MONITOR              164 /* Juniper Passive Monitor PIC */
#define DLT_BACNET_MS_TP                 165 /* BACnet MS/TP */
#define DLT_PPP_PPPD                     166 /* PPP for pppd, with direction flag */
#define DLT_JUNIPER_PPPOE                167 /* Juniper PPPoE */
#define DLT_JUNIPER_PPPOE_ATM            168 /* Juniper PPPoE/ATM */
#define DLT_GPRS_LLC                     169 /* GPRS LLC */
#define DLT_GPF_T                        170 /* GPF-T */
#define DLT_GPF_F                        171 /* GPF-F */
#define DLT_GCOM_T1E1                    172 /* Gcom T1/E1 */
#define DLT_GCOM_SERIAL                  173 /* Gcom serial */
#define DLT_JUNIPER_PIC_PEER             174 /* Juniper PIC Peer */
#define DLT_ERF_ETH                      175 /* Ethernet with Endace ERF header */
#define DLT_ERF_POS                      176 /* Packet-over-SONET with Endace ERF header */
#define DLT_LINUX_LAPD                   177 /* Linux vISDN LAPD */
#define DLT_JUNIPER_ETHER                178 /* Juniper Ethernet */
#define DLT_JUNIPER_PPP                  179 /* Juniper PPP */
#define DLT_JUNIPER_FRELAY               180 /* Juniper Frame Relay */
#define DLT_JUNIPER_CHDLC                181 /* Juniper C-HDLC */
#define DLT_MFR                          182 /* FRF.16 Frame Relay */
#define DLT_JUNIPER_VP                   183 /* Juniper Voice PIC */
#define DLT_A429                         184 /* Arinc 429 */
#define DLT_A653_ICM                     185 /* Arinc 653 Interpartition Communication */
#define DLT_USB_FREEBSD                  186 /* USB with FreeBSD header */
#define DLT_BLUETOOTH_HCI_H4             187 /* Bluetooth HCI UART transport layer */
#define DLT_IEEE802_16_MAC_CPS           188 /* IEEE 802.16 MAC Common Part Sublayer */
#define DLT_USB_LINUX                    189 /* USB with Linux header */
#define DLT_CAN20B                       190 /* Controller Area Network (CAN) v. 2.0B */
#define DLT_IEEE802_15_4_LINUX           191 /* IEEE 802.15.4 with Linux padding */
#define DLT_PPI                          192 /* Per-Packet Information */
#define DLT_IEEE802_16_MAC_CPS_RADIO     193 /* IEEE 802.16 MAC Common Part Sublayer plus radiotap header */
#define DLT_JUNIPER_ISM                  194 /* Juniper Integrated Service Module */
#define DLT_IEEE802_15_4                 195 /* IEEE 802.15.4 with FCS */
#define DLT_SITA                         196 /* SITA pseudo-header */
#define DLT_ERF                          197 /* Endace ERF header */
#define DLT_RAIF1                        198 /* Ethernet with u10 Networks pseudo-header */
#define DLT_IPMB_KONTRON                 199 /* IPMB with Kontron pseudo-header */
#define DLT_JUNIPER_ST                   200 /* Juniper Secure Tunnel */
#define DLT_BLUETOOTH_HCI_H4_WITH_PHDR   201 /* Bluetooth HCI UART transport layer plus pseudo-header */
#define DLT_AX25_KISS                    202 /* AX.25 with KISS header */
#define DLT_LAPD                         203 /* LAPD without pseudo-header */
#define DLT_PPP_WITH_DIR                 204 /* PPP with direction byte */
#define DLT_C_HDLC_WITH_DIR              205 /* Cisco HDLC with direction byte */
#define DLT_FRELAY_WITH_DIR              206 /* Frame Relay with direction byte */
#define DLT_LAPB_WITH_DIR                207 /* LAPB with direction byte */
#define DLT_IPMB_LINUX                   209 /* IPMB with Linux/Pigeon Point pseudo-header */
#define DLT_FLEXRAY                      210 /* FlexRay automotive bus */
#define DLT_MOST                         211 /* Media Oriented Systems Transport bus */
#define DLT_LIN                          212 /* Local Interconnect Network bus */
#define DLT_X2E_SERIAL                   213 /* X2E serial line */
#define DLT_X2E_XORAYA                   214 /* X2E Xoraya data logger */
#define DLT_IEEE802_15_4_NONASK_PHY      215 /* IEEE 802.15.4 with non-ASK PHY data */
#define DLT_LINUX_EVDEV                  216 /* Linux evdev events */
#define DLT_GSMTAP_UM                    217 /* GSM Um with GSMTAP header */
#define DLT_GSMTAP_ABIS                  218 /* GSM Abis with GSMTAP header */
#define DLT_MPLS                         219 /* MPLS with label as link-layer header */
#define DLT_USB_LINUX_MMAPPED            220 /* USB with padded Linux header */
#define DLT_DECT                         221 /* DECT */
#define DLT_AOS                          222 /* AOS Space Data Link protocol */
#define DLT_WIHART                       223 /* Wireless HART */
#define DLT_FC_2                         224 /* Fibre Channel FC-2 */
#define DLT_FC_2_WITH_FRAME_DELIMS       225 /* Fibre Channel FC-2 with frame delimiters */
#define DLT_IPNET                        226 /* Solaris ipnet */
#define DLT_CAN_SOCKETCAN                227 /* CAN-bus with SocketCAN headers */
#define DLT_IPV4                         228 /* Raw IPv4 */
#define DLT_IPV6                         229 /* Raw IPv6 */
#define DLT_IEEE802_15_4_NOFCS           230 /* IEEE 802.15.4 without FCS */
#define DLT_DBUS                         231 /* D-Bus */
#define DLT_JUNIPER_VS                   232 /* Juniper Virtual Server */
#define DLT_JUNIPER_SRX_E2E              233 /* Juniper SRX E2E */
#define DLT_JUNIPER_FIBRECHANNEL         234 /* Juniper Fibre Channel */
#define DLT_DVB_CI                       235 /* DVB-CI */
#define DLT_MUX27010                     236 /* MUX27010 */
#define DLT_STANAG_5066_D_PDU            237 /* STANAG 5066 D_PDUs */
#define DLT_JUNIPER_ATM_CEMIC            238 /* Juniper ATM CEMIC */
#define DLT_NFLOG                        239 /* Linux netfilter log messages */
#define DLT_NETANALYZER                  240 /* Ethernet with Hilscher netANALYZER pseudo-header */
#define DLT_NETANALYZER_TRANSPARENT      241 /* Ethernet with Hilscher netANALYZER pseudo-header and with preamble and SFD */
#define DLT_IPOIB                        242 /* RFC 4391 IP-over-Infiniband */
#define DLT_MPEG_2_TS                    243 /* MPEG-2 transport stream */
#define DLT_NG40                         244 /* ng40 protocol tester Iub/Iur */
#define DLT_NFC_LLCP                     245 /* NFC LLCP PDUs with pseudo-header */
#define DLT_PFSYNC                       246 /* Packet filter state syncing */
#define DLT_INFINIBAND                   247 /* InfiniBand */
#define DLT_SCTP                         248 /* SCTP */
#define DLT_USBPCAP                      249 /* USB with USBPcap header */
#define DLT_RTAC_SERIAL                  250 /* Schweitzer Engineering Laboratories RTAC packets */
#define DLT_BLUETOOTH_LE_LL              251 /* Bluetooth Low Energy air interface */
#define DLT_WIRESHARK_UPPER_PDU          252 /* Wireshark upper-layer PDU export */
#define DLT_NETLINK                      253 /* Linux netlink */
#define DLT_BLUETOOTH_LINUX_MONITOR      254 /* Bluetooth Linux Monitor */
#define DLT_BLUETOOTH_BREDR_BB           255 /* Bluetooth Basic Rate/Enhanced Data Rate baseband packets */
#define DLT_BLUETOOTH_LE_LL_WITH_PHDR    256 /* Bluetooth Low Energy air interface with pseudo-header */
#define DLT_PROFIBUS_DL                  257 /* PROFIBUS data link layer */
#define DLT_PKTAP                        258 /* Apple DLT_PKTAP */
#define DLT_EPON                         259 /* Ethernet with 802.3 Clause 65 EPON preamble */
#define DLT_IPMI_HPM_2                   260 /* IPMI trace packets */
#define DLT_ZWAVE_R1_R2                  261 /* Z-Wave RF profile R1 and R2 packets */
#define DLT_ZWAVE_R3                     262 /* Z-Wave RF profile R3 packets */
#define DLT_WATTSTOPPER_DLM              263 /* WattStopper Digital Lighting Management (DLM) and Legrand Nitoo Open protocol */
#define DLT_ISO_14443                    264 /* ISO 14443 messages */
#define DLT_RDS                          265 /* IEC 62106 Radio Data System groups */
#define DLT_USB_DARWIN                   266 /* USB with Darwin header */
#define DLT_OPENFLOW                     267 /* OpenBSD DLT_OPENFLOW */
#define DLT_SDLC                         268 /* IBM SDLC frames */
#define DLT_TI_LLN_SNIFFER               269 /* TI LLN sniffer frames */
#define DLT_LORATAP                      270 /* LoRaWAN with LoRaTap pseudo-header */
#define DLT_VSOCK                        271 /* Linux vsock */
#define DLT_NORDIC_BLE                   272 /* Nordic Semiconductor Bluetooth LE sniffer frames */
#define DLT_DOCSIS31_XRA31               273 /* Excentis XRA-31 DOCSIS 3.1 RF sniffer frames */
#define DLT_ETHERNET_MPACKET             274 /* 802.3br mPackets */
#define DLT_DISPLAYPORT_AUX              275 /* DisplayPort AUX channel monitoring data */
#define DLT_LINUX_SLL2                   276 /* Linux cooked v2 */
#define DLT_SERCOS_MONITOR               277 /* Sercos Monitor */
#define DLT_OPENVIZSLA                   278 /* OpenVizsla USB */
#define DLT_EBHSCR                       279 /* Elektrobit High Speed Capture and Replay (EBHSCR) */
#define DLT_VPP_DISPATCH                 280 /* VPP graph dispatch tracer */
#define DLT_DSA_TAG_BRCM                 281 /* Broadcom tag */
#define DLT_DSA_TAG_BRCM_PREPEND         282 /* Broadcom tag (prepended) */
#define DLT_IEEE802_15_4_TAP             283 /* IEEE 802.15.4 with pseudo-header */
#define DLT_DSA_TAG_DSA                  284 /* Marvell DSA */
#define DLT_DSA_TAG_EDSA                 285 /* Marvell EDSA */
#define DLT_ELEE                         286 /* ELEE lawful intercept packets */
#define DLT_Z_WAVE_SERIAL                287 /* Z-Wave serial frames between host and chip */
#define DLT_USB_2_0                      288 /* USB 2.0/1.1/1.0 as transmitted over the cable */
#define DLT_ATSC_ALP                     289 /* ATSC Link-Layer Protocol packets */
#define DLT_ETW                          290 /* Event Tracing for Windows */
#define DLT_NETANALYZER_NG               291 /* Hilscher netANALYZER NG */
#define DLT_ZBOSS_NCP                    292 /* ZBOSS network co-processor protocol for Zigbee */
#define DLT_USB_2_0_LOW_SPEED            293 /* USB 2.0/1.1/1.0 on the cable, low speed */
#define DLT_USB_2_0_FULL_SPEED           294 /* USB 2.0/1.1/1.0 on the cable, full speed */
#define DLT_USB_2_0_HIGH_SPEED           295 /* USB 2.0 on the cable, high speed */
#define DLT_AUERSWALD_LOG                296 /* Auerswald Logger Protocol */
#define DLT_ZWAVE_TAP                    297 /* Z-Wave with TAP metadata header */
#define DLT_SILABS_DEBUG_CHANNEL         298 /* Silicon Labs debug channel */
#define DLT_FIRA_UCI                     299 /* FiRa ultra-wideband controller interface */
#define DLT_MDB                          300 /* Multi-Drop Bus of vending machines */
#define DLT_DECT_NR                      301 /* DECT-2020 New Radio MAC */
#define DLT_EDK2_MM                      302 /* EDK II management mode requests */
#define DLT_DEBUG_ONLY                   303 /* Debugging output, not a format */

/* Second names. */
#define DLT_CHDLC                        104
#define DLT_IEEE802_15_4_WITHFCS         195
#define DLT_LINUX_PPP_WITHDIRECTION      166
#define DLT_PPP_WITH_DIRECTION           166
#define DLT_REDBACK_SMARTEDGE             32
#define DLT_USB                          186

/* NetBSD's raw address families share one class. */
#define DLT_CLASS(x)                ((x) & 0x03ff0000)
#define DLT_CLASS_NETBSD_RAWAF      0x02240000
#define DLT_NETBSD_RAWAF(af)        (DLT_CLASS_NETBSD_RAWAF | (af))
#define DLT_NETBSD_RAWAF_AF(x)      ((x) & 0x0000ffff)
#define DLT_IS_NETBSD_RAWAF(x)      (DLT_CLASS(x) == DLT_CLASS_NETBSD_RAWAF)

/* From the first to the last of these, DLT and LINKTYPE are the same number. */
#define DLT_MATCHING_MIN            104
#define DLT_MATCHING_MAX            303

#endif
