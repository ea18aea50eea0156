// IP router: forwards IPv4 between two networks as RFC 1812 asks.
//
// It answers ARP and pings for its own addresses, and asks for its neighbours' addresses by ARP. It checks headers,
// decrements the time to live, fills in IP options and fragments packets that are too large for the next link. ICMP
// errors tell senders of packets without a route, of an expired time to live, of bad options, of packets that may not
// be fragmented, and of a better gateway on their own link.
//
// Devices: 0, the first network's link; 1, the second's.
// Parameters: NET0, NET1: the router's address on each link with the network's length; MAC0, MAC1: its Ethernet
//   addresses; GATEWAY: the next router on link 1, for all other destinations; MTU: the most bytes of IP packets.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box ip-router.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: routes.add, routes.remove and routes.table; out0.drops and the like.

define($NET0 10.0.0.1/24, $MAC0 02:00:00:00:00:10,
       $NET1 192.168.1.1/24, $MAC1 02:00:00:00:00:11,
       $GATEWAY 192.168.1.254, $MTU 1500);

AddressInfo(if0 $NET0 $MAC0, if1 $NET1 $MAC1);

// The receiving half of a link: ARP goes to the link's own elements, IP packets are painted with the link's number.
elementclass Receive { $address, $number |
  input -> kinds :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
  kinds[0] -> ARPResponder($address) -> [1] output;
  kinds[1] -> [2] output;
  kinds[2] -> Paint($number) -> Strip(14) -> [0] output;
  kinds[3] -> Discard;
}

// The sending half: everything that RFC 1812 asks for between the lookup and the link.
// Outputs: 0 to the link; 1 to 4 errors: redirect, bad option, expired, too big. Input 1 has ARP replies.
elementclass Send { $address, $number, $mtu |
  input[0] -> DropBroadcasts
    -> redirect :: PaintTee($number)
    -> options :: IPGWOptions($address)
    -> FixIPSrc($address)
    -> ttl :: DecIPTTL
    -> fragments :: IPFragmenter($mtu)
    -> querier :: ARPQuerier($address)
    -> [0] output;
  input[1] -> [1] querier;
  redirect[1] -> [1] output;
  options[1] -> [2] output;
  ttl[1] -> [3] output;
  fragments[1] -> [4] output;
}

// Routes: 0 the router itself, 1 link 0, 2 link 1.
routes :: LinearIPLookup(if0/32 0, if1/32 0,
                         if0:ipnet 1, if1:ipnet 2,
                         0.0.0.0/0 $GATEWAY 2);

link0 :: Receive(if0, 1);
link1 :: Receive(if1, 2);
out0 :: Queue(200) -> ToDevice(0);
out1 :: Queue(200) -> ToDevice(1);
check :: CheckIPHeader(INTERFACES $NET0 $NET1) -> GetIPAddress(16) -> routes;

FromDevice(0) -> HostEtherFilter(if0) -> link0;
FromDevice(1) -> HostEtherFilter(if1) -> link1;
link0[0] -> check;
link1[0] -> check;
link0[1] -> out0;
link1[1] -> out1;

send0 :: Send(if0, 1, $MTU) -> out0;
send1 :: Send(if1, 2, $MTU) -> out1;
link0[2] -> [1] send0;
link1[2] -> [1] send1;

// The router's own addresses: it answers pings, and tells that it offers no service.
routes[0] -> own :: IPClassifier(icmp type echo, icmp, -);
own[0] -> ICMPPingResponder -> routes;
own[1] -> Discard;
own[2] -> ICMPError(if0, unreachable, port) -> routes;
routes[1] -> send0;
routes[2] -> send1;

// Errors go back by the same table, from the address of the link by which they leave.
send0[1] -> ICMPError(if0, redirect, host) -> routes;
send0[2] -> ICMPError(if0, parameterproblem) -> routes;
send0[3] -> ICMPError(if0, timeexceeded) -> routes;
send0[4] -> ICMPError(if0, unreachable, needfrag, PMTU $MTU) -> routes;
send1[1] -> ICMPError(if1, redirect, host) -> routes;
send1[2] -> ICMPError(if1, parameterproblem) -> routes;
send1[3] -> ICMPError(if1, timeexceeded) -> routes;
send1[4] -> ICMPError(if1, unreachable, needfrag, PMTU $MTU) -> routes;
