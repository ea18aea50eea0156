// Tunnel: joins two sites over another network, by GRE in IPv4 (RFC 2784) with a key and sequence numbers.
//
// Each site runs this file with its own addresses. Packets from the site that go to the other one are wrapped; those
// that are too large for the tunnel are cut, or their senders told. From the tunnel only packets of the other end with
// the right key and in order are taken. Nothing is encrypted: ipsec-tunnel.click does that.
//
// Devices: 0, the site; 1, the network between.
// Parameters: SITE, MAC0: our address and network at the site; LOCAL, MAC1: the tunnel's end here; REMOTE: its other
//   end; NEXT_HOP: the router towards it; FAR: the other site's network; KEY; MTU: of packets in the tunnel.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box tunnel.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: wrapped.count, unwrapped.count, gre.drops.

define($SITE 10.1.0.1/16, $MAC0 02:00:00:00:00:10,
       $LOCAL 192.0.2.1/24, $MAC1 02:00:00:00:00:11,
       $REMOTE 198.51.100.1, $NEXT_HOP 192.0.2.254,
       $FAR 10.2.0.0/16, $KEY 7, $MTU 1468);

AddressInfo(site $SITE $MAC0, here $LOCAL $MAC1);

elementclass Link { $address |
  input -> kinds :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
  kinds[0] -> ARPResponder($address) -> [1] output;
  kinds[1] -> [2] output;
  kinds[2] -> Strip(14) -> CheckIPHeader -> [0] output;
  kinds[3] -> Discard;
}

to_site :: ToDevice(0);
to_between :: ToDevice(1);
FromDevice(0) -> HostEtherFilter(site) -> inside :: Link(site);
FromDevice(1) -> HostEtherFilter(here) -> outside :: Link(here);
inside[1] -> to_site;
outside[1] -> to_between;
ask_site :: ARPQuerier(site) -> to_site;
ask_between :: ARPQuerier(here) -> to_between;
inside[2] -> [1] ask_site;
outside[2] -> [1] ask_between;

inside -> IPFilter(allow src net site:ipnet && dst net $FAR, deny all)
  -> ttl :: DecIPTTL
  -> size :: IPFragmenter($MTU)
  -> wrapped :: Counter
  -> GREEncap(KEY $KEY, SEQUENCE true)
  -> IPEncap(gre, here, $REMOTE)
  -> SetIPAddress($NEXT_HOP) -> ask_between;
ttl[1] -> ICMPError(site, timeexceeded) -> ask_site;
size[1] -> ICMPError(site, unreachable, needfrag, PMTU $MTU) -> ask_site;

outside -> IPFilter(allow ip proto gre && src host $REMOTE && dst host here, deny all)
  -> StripIPHeader
  -> gre :: GREDecap(0x0800, KEY $KEY, SEQUENCE true)
  -> CheckIPHeader
  -> IPFilter(allow src net $FAR && dst net site:ipnet, deny all)
  -> unwrapped :: Counter
  -> GetIPAddress(16) -> ask_site;
