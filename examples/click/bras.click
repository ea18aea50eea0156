// Software BRAS: two subscriber lines by PPPoE, and a GRE tunnel to the provider that serves them.
//
// Hosts find it and open sessions by PPPoE discovery (RFC 2516), and agree on the link and their address by LCP and
// IPCP. Then session numbers, message types and source addresses are checked, tunnel headers stripped, each line held
// to its rate both ways, and packets routed: between lines, to the provider by GRE, or to the network at hand with a
// new Ethernet header.
//
// Devices: 0, the access network; 1, the core.
// Parameters: ACCESS_MAC, CORE_MAC: our Ethernet addresses; NEXT_MAC: the core router's; GATEWAY: our address for
//   subscribers; LINE1, LINE2: theirs; RATE: each line's bytes a second; LOCAL, REMOTE, KEY: the tunnel's ends and key;
//   NEAR: a network that is reached without the tunnel.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box bras.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: discovery.sessions, line1/ppp.up, line1/up.count, line1/over_up.count, line1/over_down.count.

define($ACCESS_MAC 02:00:00:00:00:10, $CORE_MAC 02:00:00:00:00:11, $NEXT_MAC 02:00:00:00:00:fe,
       $GATEWAY 100.64.0.1, $LINE1 100.64.0.11, $LINE2 100.64.0.12, $RATE 125000,
       $LOCAL 192.0.2.1, $REMOTE 192.0.2.2, $KEY 77, $NEAR 198.51.100.0/24);

// A line: input 0 has frames of its session, input 1 packets for the subscriber.
// Output 0 has frames for the subscriber, output 1 packets from him.
elementclass Line { $session, $address |
  input[0] -> PPPoEDecap($session, DISCOVERY discovery) -> ppp :: PPPControlProtocol($GATEWAY, $address);
  ppp[0] -> SetVLANAnno($session) -> PPPoEEncap(DISCOVERY discovery) -> [0] output;
  ppp[1] -> CheckIPHeader
    -> IPFilter(allow src host $address, deny all)
    -> police_up :: BandwidthRatedSplitter($RATE, BURST_DURATION 1s) -> up :: Counter -> [1] output;
  input[1] -> police_down :: BandwidthRatedSplitter($RATE, BURST_DURATION 1s) -> down :: Counter -> [1] ppp;
  police_up[1] -> over_up :: Counter -> Discard;
  police_down[1] -> over_down :: Counter -> Discard;
}

to_access :: ToDevice(0);
to_core :: ToDevice(1);

FromDevice(0) -> discovery :: PPPoEDiscovery($ACCESS_MAC, bras, SERVICES internet, CAPACITY 2, PER_HOST 1)
  -> to_access;
discovery[1] -> sessions :: Classifier(12/8864 16/0001, 12/8864 16/0002, -);
sessions[0] -> line1 :: Line(1, $LINE1) -> to_access;
sessions[1] -> line2 :: Line(2, $LINE2) -> to_access;
sessions[2] -> Discard;

// Routes: 0 we ourselves, 1 and 2 the lines, 3 near, 4 by the tunnel.
routes :: LinearIPLookup($GATEWAY/32 0, $LINE1/32 1, $LINE2/32 2, $NEAR 3, 0.0.0.0/0 4);
line1[1] -> ttl :: DecIPTTL -> routes;
line2[1] -> ttl;
ttl[1] -> ICMPError($GATEWAY, timeexceeded) -> routes;
routes[0] -> IPClassifier(icmp type echo) -> ICMPPingResponder -> routes;
routes[1] -> [1] line1;
routes[2] -> [1] line2;
routes[3] -> near :: EtherEncap(0x0800, $CORE_MAC, $NEXT_MAC) -> to_core;
routes[4] -> GREEncap(KEY $KEY) -> IPEncap(gre, $LOCAL, $REMOTE) -> near;

// From the core come packets in the tunnel, and plain ones of the near network.
FromDevice(1) -> HostEtherFilter($CORE_MAC) -> arrived :: Classifier(12/0800, 12/0806 20/0001, -);
arrived[0] -> Strip(14) -> CheckIPHeader
  -> core :: IPClassifier(ip proto gre && src host $REMOTE && dst host $LOCAL, src net $NEAR, -);
arrived[1] -> ARPResponder($LOCAL $CORE_MAC, $LINE1 $CORE_MAC, $LINE2 $CORE_MAC) -> to_core;
arrived[2] -> Discard;
core[0] -> StripIPHeader -> GREDecap(0x0800, KEY $KEY) -> CheckIPHeader -> for_lines :: DecIPTTL -> subscribers ::
  LinearIPLookup($LINE1/32 0, $LINE2/32 1);
core[1] -> for_lines;
core[2] -> Discard;
subscribers[0] -> [1] line1;
subscribers[1] -> [1] line2;
