// Flow monitor: passes all packets and keeps statistics of each flow, by addresses, ports and protocol.
//
// Devices: 0 and 1.
// Parameters: FLOWS: the most flows each way; TIMEOUT: when a silent flow is forgotten.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box flow-monitor.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: up.table and down.table have a line a flow: source, port, destination, port, protocol, packets, bytes.
//   up.flows, up.count, up.byte_count; up.missed counts packets of flows beyond FLOWS; up.reset.

define($FLOWS 65536, $TIMEOUT 300s);

FromDevice(0) -> MarkIPHeader(14) -> up :: FlowMonitor($FLOWS, TIMEOUT $TIMEOUT) -> ToDevice(1);
FromDevice(1) -> MarkIPHeader(14) -> down :: FlowMonitor($FLOWS, TIMEOUT $TIMEOUT) -> ToDevice(0);
