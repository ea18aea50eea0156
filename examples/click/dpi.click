// Deep packet inspection: tells applications by what packets carry, counts them and marks their service class.
//
// IPClassifier tells TCP and DNS apart, Classifier looks at the first bytes behind the TCP header. The class goes into
// the packet's DSCP, so that other boxes can act on it. All packets pass.
//
// Devices: 0 and 1; both ways are inspected.
// Parameters: the DSCP of each class.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box dpi.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: up/web.count, up/tls.count, up/ssh.count, up/torrent.count, up/dns.count, up/other.count; down/... .

define($WEB 10, $TLS 18, $SSH 26, $TORRENT 8, $DNS 46);

elementclass Mark { $class | input -> UnstripIPHeader -> SetIPDSCP($class) -> output; }

elementclass Inspect {
  input -> frames :: Classifier(12/0800, -);
  frames[0] -> Strip(14) -> CheckIPHeader -> kinds :: IPClassifier(tcp, udp port 53, -);
  frames[1] -> output;
  back :: Unstrip(14) -> output;

  // GET, POST, HEAD and HTTP; a TLS handshake; SSH's banner; BitTorrent's handshake.
  kinds[0] -> StripTransportHeader
    -> payload :: Classifier(0/47455420, 0/504f5354, 0/48454144, 0/48545450,
                             0/1603, 0/5353482d, 0/13426974546f7272656e74, -);
  payload[0] -> web :: Counter -> Mark($WEB) -> back;
  payload[1] -> web;
  payload[2] -> web;
  payload[3] -> web;
  payload[4] -> tls :: Counter -> Mark($TLS) -> back;
  payload[5] -> ssh :: Counter -> Mark($SSH) -> back;
  payload[6] -> torrent :: Counter -> Mark($TORRENT) -> back;
  payload[7] -> UnstripIPHeader -> other :: Counter -> back;
  kinds[1] -> dns :: Counter -> SetIPDSCP($DNS) -> back;
  kinds[2] -> other;
}

FromDevice(0) -> up :: Inspect -> ToDevice(1);
FromDevice(1) -> down :: Inspect -> ToDevice(0);
