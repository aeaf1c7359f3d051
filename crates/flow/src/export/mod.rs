//! Flows as messages of NetFlow v5, v9 and IPFIX.
