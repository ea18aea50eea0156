// Carrier-grade NAT: many subscribers share a few public addresses (RFC 6888).
//
// TCP and UDP flows of the inside get one of the public addresses and a port of its range; a subscriber's flows all
// get the same address, by a hash of his. Pings get an identifier of their own. ICMP errors about translated packets
// are translated too, with what they quote. Packets from outside that belong to no flow end.
//
// Devices: 0, subscribers; 1, the public side.
// Parameters: GATEWAY: our address for subscribers; MAC0, MAC1: our Ethernet addresses; PUBLIC: our own public address
//   and network; POOL0, POOL1: the addresses that subscribers share; NEXT_HOP: the router outside; FLOWS: the most
//   flows.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box cgn.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: nat.tcp_mappings, nat.udp_mappings, nat.mapping_failures, pings.mappings.

define($GATEWAY 100.64.0.1/10, $MAC0 02:00:00:00:00:10,
       $PUBLIC 203.0.113.1/24, $MAC1 02:00:00:00:00:11,
       $POOL0 203.0.113.10, $POOL1 203.0.113.11,
       $NEXT_HOP 203.0.113.254, $FLOWS 65536);

AddressInfo(subscribers $GATEWAY $MAC0, public $PUBLIC $MAC1);

IPRewriterPatterns(pool0 $POOL0 1024-65535 - -,
                   pool1 $POOL1 1024-65535 - -);
pool :: SourceIPHashMapper(16 4711, pool0 0 1 1, pool1 0 1 2);

nat :: IPRewriter(pool, drop,
                  TCP_TIMEOUT 7440s, TCP_DONE_TIMEOUT 240s, UDP_TIMEOUT 300s,
                  MAPPING_CAPACITY $FLOWS);
pings :: ICMPPingRewriter(pattern $POOL0 - 0-65535 0 1, drop, MAPPING_CAPACITY $FLOWS);
errors :: ICMPRewriter(nat pings);

elementclass Link { $address |
  input -> kinds :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
  kinds[0] -> [1] output;
  kinds[1] -> [2] output;
  kinds[2] -> Strip(14) -> CheckIPHeader -> [0] output;
  kinds[3] -> Discard;
}

inside :: Link(subscribers);
outside :: Link(public);
to_inside :: ToDevice(0);
to_outside :: ToDevice(1);
FromDevice(0) -> HostEtherFilter(subscribers) -> inside;
FromDevice(1) -> HostEtherFilter(public) -> outside;
inside[1] -> ARPResponder(subscribers) -> to_inside;
outside[1] -> ARPResponder(public, $POOL0 $MAC1, $POOL1 $MAC1) -> to_outside;

// Translated packets leave; the time to live counts this hop.
ask_inside :: ARPQuerier(subscribers) -> to_inside;
ask_outside :: ARPQuerier(public) -> to_outside;
inside[2] -> [1] ask_inside;
outside[2] -> [1] ask_outside;
out :: DecIPTTL -> SetIPAddress($NEXT_HOP) -> ask_outside;
in :: DecIPTTL -> GetIPAddress(16) -> ask_inside;
out[1] -> Discard;
in[1] -> ICMPError(public, timeexceeded) -> SetIPAddress($NEXT_HOP) -> ask_outside;

inside -> IPFilter(allow src net subscribers:ipnet && not dst net subscribers:ipnet, deny all)
  -> from_inside :: IPClassifier(tcp or udp, icmp type echo, icmp, -);
from_inside[0] -> [0] nat;
from_inside[1] -> [0] pings;
from_inside[2] -> errors;
from_inside[3] -> Discard;

outside -> from_outside :: IPClassifier(tcp or udp, icmp type echo-reply, icmp, -);
from_outside[0] -> [1] nat;
from_outside[1] -> [1] pings;
from_outside[2] -> errors;
from_outside[3] -> Discard;

nat[0] -> out;
nat[1] -> in;
pings[0] -> out;
pings[1] -> in;
errors -> sides :: IPClassifier(dst net subscribers:ipnet, -);
sides[0] -> in;
sides[1] -> out;
