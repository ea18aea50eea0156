// Wire: what comes in at one port leaves by the other, unchanged. It is the baseline for the other middleboxes.
//
// Devices: 0 and 1, the two ends of the wire.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box wire.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: up.count and down.count, packets each way.

FromDevice(0) -> up :: Counter -> ToDevice(1);
FromDevice(1) -> down :: Counter -> ToDevice(0);
