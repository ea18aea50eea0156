// Congestion control: tells senders early that a link fills up, by marks where they understand them.
//
// RED chooses packets at random as the queue before the link grows. Those of senders with ECN (RFC 3168) are marked by
// SetECN and go on; others are dropped.
//
// Devices: 0, the senders; 1, the slow link. Answers pass at once.
// Parameters: RATE: the link's bytes a second; MIN, MAX: the average queue from which packets are chosen, and from
//   which all are; PART: the share that is chosen near MAX; ROOM: packets that the queue holds.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box congestion.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: marked.count, dropped.count, red.avg_queue_size, red.stats, queue.length, queue.drops.

define($RATE 125000, $MIN 5, $MAX 50, $PART 0.1, $ROOM 200);

FromDevice(0) -> frames :: Classifier(12/0800, -);
frames[0] -> CheckIPHeader(OFFSET 14) -> red :: RED($MIN, $MAX, $PART, QUEUES queue)
  -> queue :: Queue($ROOM) -> BandwidthShaper($RATE) -> ToDevice(1, BURST 1);
frames[1] -> queue;
red[1] -> able :: IPClassifier(ip ect, -);
able[0] -> marked :: Counter -> SetECN(ce) -> queue;
able[1] -> dropped :: Counter -> Discard;

FromDevice(1) -> ToDevice(0);
