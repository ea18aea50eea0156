// Traffic shaper: holds traffic to a rate, and delays it as a longer link would.
//
// Packets wait in a queue, which drops what it has no room for. BandwidthShaper lets so many bytes a second go,
// DelayShaper keeps each packet for so long.
//
// Devices: 0, the side that is shaped; 1, the other. Answers from 1 to 0 pass at once.
// Parameters: RATE: bytes a second; DELAY: seconds; ROOM: packets that may wait.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box traffic-shaper.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: queue.length, queue.drops, queue.highwater_length; rate.rate and delay.delay can be written.

define($RATE 125000, $DELAY 0.02, $ROOM 100);

FromDevice(0) -> SetTimestamp -> queue :: Queue($ROOM)
  -> delay :: DelayShaper($DELAY) -> rate :: BandwidthShaper($RATE) -> ToDevice(1, BURST 1);
FromDevice(1) -> ToDevice(0);
