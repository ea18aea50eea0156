// Monitoring: measures who sends and gets how much, and follows TCP streams, beside the packets' way.
//
// All packets pass at once. Copies go to IPRateMonitor, which has rates by source and destination network and looks
// closer at busy ones, and to TCPCollector, which puts streams in order: what leaves it is each byte once.
//
// Devices: 0 and 1.
// Parameters: RATIO: the share of packets that is measured; THRESH: bytes a second from which parts of a network are
//   measured by themselves; STREAMS: the most TCP streams.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box monitor.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: rates.look; tcp.flows, tcp.duplicates, tcp.held; stream.count, stream.byte_count; late.count.

define($RATIO 1, $THRESH 100, $STREAMS 4096);

rates :: IPRateMonitor(BYTES, $RATIO, $THRESH);
tcp :: TCPCollector(FLOWS $STREAMS, BYTES 16384, PACKETS 1024);

elementclass Copy { input -> tee :: Tee -> [0] output;
  tee[1] -> Classifier(12/0800) -> Strip(14) -> CheckIPHeader -> [1] output;
}

FromDevice(0) -> up :: Copy -> ToDevice(1);
FromDevice(1) -> down :: Copy -> ToDevice(0);
up[1] -> [0] rates;
down[1] -> [1] rates;
rates[0] -> kinds :: IPClassifier(tcp, -);
rates[1] -> kinds;
kinds[0] -> tcp;
kinds[1] -> Discard;
tcp[0] -> stream :: Counter -> Discard;
tcp[1] -> late :: Counter -> Discard;
