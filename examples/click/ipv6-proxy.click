// IPv6/IPv4 proxy: hosts that speak IPv6 alone reach hosts that speak IPv4 alone.
//
// An IPv4 address a.b.c.d is ::a.b.c.d on the IPv6 side. AddressTranslator gives each flow of the IPv6 side a port of
// one IPv4 address, ProtocolTranslator64 makes IPv4 packets, and ProtocolTranslator46 makes IPv6 packets of the
// answers. TCP, UDP and pings pass.
//
// Devices: 0, the IPv6 network; 1, the IPv4 network.
// Parameters: MAC0, MAC1: our Ethernet addresses; ADDRESS6, LINK6: our IPv6 addresses; SHARED: the IPv4 address, and
//   FIRST to LAST the ports that flows get; NET4: our IPv4 network; NEXT_HOP: the IPv4 router.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box ipv6-proxy.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: up.count, down.count.

define($MAC0 02:00:00:00:00:10, $MAC1 02:00:00:00:00:11,
       $ADDRESS6 2001:db8::1, $LINK6 fe80::10,
       $SHARED 203.0.113.1, $FIRST 6000, $LAST 6999, $NET4 203.0.113.0/24, $NEXT_HOP 203.0.113.254);

to_6 :: ToDevice(0);
to_4 :: ToDevice(1);
translate :: AddressTranslator(0, 1, 1, 0, ::$SHARED $FIRST $LAST);

// The IPv6 side: solicitations are answered, advertisements learned.
FromDevice(0) -> side6 :: Classifier(12/86dd 20/3aff 54/87, 12/86dd 20/3aff 54/88, 12/86dd, -);
solicit :: IP6NDSolicitor($LINK6, $MAC0) -> to_6;
side6[0] -> IP6NDAdvertiser($ADDRESS6/128 $MAC0, $LINK6/128 $MAC0) -> to_6;
side6[1] -> [1] solicit;
side6[2] -> Strip(14) -> CheckIP6Header -> hops :: DecIP6HLIM
  -> GetIP6Address(24) -> routes6 :: LookupIP6Route(::/96 :: 0, ::/0 :: 1);
side6[3] -> Discard;
hops[1] -> ICMP6Error($ADDRESS6, 3, 0) -> GetIP6Address(24) -> [0] solicit;
routes6[0] -> [0] translate;
routes6[1] -> Discard;
translate[0] -> up :: Counter -> ProtocolTranslator64 -> CheckIPHeader
  -> routes4 :: LinearIPLookup($NET4 0, 0.0.0.0/0 $NEXT_HOP 0) -> [0] ask :: ARPQuerier($SHARED, $MAC1) -> to_4;

// The IPv4 side.
FromDevice(1) -> HostEtherFilter($MAC1) -> side4 :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
side4[0] -> ARPResponder($SHARED $MAC1) -> to_4;
side4[1] -> [1] ask;
side4[2] -> Strip(14) -> CheckIPHeader -> ttl :: DecIPTTL
  -> IPFilter(allow dst host $SHARED, deny all)
  -> ProtocolTranslator46 -> [1] translate;
side4[3] -> Discard;
ttl[1] -> Discard;
translate[1] -> down :: Counter -> CheckIP6Header -> GetIP6Address(24) -> [0] solicit;
