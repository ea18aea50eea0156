// Mirror (EtherMirror): sends every packet back where it came from, with its Ethernet addresses swapped.
//
// Devices: 0.
// Run it: netbricks instances create box && netbricks instances install box mirror.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: in.count, the packets that came.

FromDevice(0) -> in :: Counter -> EtherMirror -> ToDevice(0);
