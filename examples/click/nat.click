// NAT: a home or office network behind one public address, with one server that the outside can reach.
//
// TCP flows are rewritten by TCPRewriter, UDP by UDPRewriter, pings by ICMPPingRewriter. New TCP connections to the
// public address's port SERVICE go to the server inside. All else that comes from outside and belongs to no flow ends.
//
// Devices: 0, inside; 1, outside.
// Parameters: INSIDE, PUBLIC: our addresses with their networks; MAC0, MAC1: our Ethernet addresses; NEXT_HOP: the
//   router outside; SERVER, SERVICE: the server and its port.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box nat.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: tcp.mappings, udp.mappings, pings.mappings.

define($INSIDE 192.168.0.1/24, $MAC0 02:00:00:00:00:10,
       $PUBLIC 203.0.113.1/24, $MAC1 02:00:00:00:00:11,
       $NEXT_HOP 203.0.113.254, $SERVER 192.168.0.80, $SERVICE 80);

AddressInfo(home $INSIDE $MAC0, public $PUBLIC $MAC1);

// Inputs: 0 new flows of the inside; 1 from outside; 2 from outside, for the server.
tcp :: TCPRewriter(pattern public:ip 1024-65535# - - 0 1, drop, pattern - - $SERVER $SERVICE 1 0);
udp :: UDPRewriter(pattern public:ip 1024-65535# - - 0 1, drop);
pings :: ICMPPingRewriter(pattern public:ip - 0-65535# 0 1, drop);
errors :: ICMPRewriter(tcp udp pings);

elementclass Link { $address |
  input -> kinds :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
  kinds[0] -> ARPResponder($address) -> [1] output;
  kinds[1] -> [2] output;
  kinds[2] -> Strip(14) -> CheckIPHeader -> [0] output;
  kinds[3] -> Discard;
}

inside :: Link(home);
outside :: Link(public);
to_inside :: ToDevice(0);
to_outside :: ToDevice(1);
FromDevice(0) -> HostEtherFilter(home) -> inside;
FromDevice(1) -> HostEtherFilter(public) -> outside;
inside[1] -> to_inside;
outside[1] -> to_outside;

ask_inside :: ARPQuerier(home) -> to_inside;
ask_outside :: ARPQuerier(public) -> to_outside;
inside[2] -> [1] ask_inside;
outside[2] -> [1] ask_outside;

// The time to live of packets from inside is checked before they are translated, so that errors name them right.
out :: SetIPAddress($NEXT_HOP) -> ask_outside;
in :: GetIPAddress(16) -> ask_inside;
inside -> ttl :: DecIPTTL
  -> IPFilter(allow src net home:ipnet && not dst net home:ipnet, deny all)
  -> from_inside :: IPClassifier(tcp, udp, icmp type echo, icmp, -);
ttl[1] -> ICMPError(home, timeexceeded) -> in;
from_inside[0] -> [0] tcp;
from_inside[1] -> [0] udp;
from_inside[2] -> [0] pings;
from_inside[3] -> errors;
from_inside[4] -> Discard;

outside -> old :: DecIPTTL
  -> from_outside :: IPClassifier(dst host public && dst tcp port $SERVICE, tcp, udp, icmp type echo-reply, icmp, -);
old[1] -> Discard;
from_outside[0] -> [2] tcp;
from_outside[1] -> [1] tcp;
from_outside[2] -> [1] udp;
from_outside[3] -> [1] pings;
from_outside[4] -> errors;
from_outside[5] -> Discard;

tcp[0] -> out;
tcp[1] -> in;
udp[0] -> out;
udp[1] -> in;
pings[0] -> out;
pings[1] -> in;
errors -> sides :: IPClassifier(dst net home:ipnet, -);
sides[0] -> in;
sides[1] -> out;
