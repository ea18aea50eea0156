// IPsec tunnel: joins two sites over another network, by ESP in tunnel mode (RFC 4303) with AES-128-CBC and
// HMAC-SHA-1-96.
//
// Each site runs this file with its own addresses, and with the same keys. Packets from the site that go to the other
// one are encrypted and signed; those that are too large for the tunnel are cut, or their senders told. From the tunnel
// only packets of the other end with a right signature and a new sequence number are taken.
//
// Devices: 0, the site; 1, the network between.
// Parameters: SITE, MAC0: our address and network at the site; LOCAL, MAC1: the tunnel's end here; REMOTE: its other
//   end; NEXT_HOP: the router towards it; FAR: the other site's network; SPI: the security parameters index;
//   ENCRYPT, AUTH: keys of 16 bytes: the ones here are known to everybody, so give others; MTU: of packets in the tunnel.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box ipsec-tunnel.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: wrapped.count, unwrapped.count, signed.drops.

define($SITE 10.1.0.1/16, $MAC0 02:00:00:00:00:10,
       $LOCAL 192.0.2.1/24, $MAC1 02:00:00:00:00:11,
       $REMOTE 198.51.100.1, $NEXT_HOP 192.0.2.254,
       $FAR 10.2.0.0/16, $MTU 1438, $SPI 4096,
       $ENCRYPT \<000102030405060708090a0b0c0d0e0f>,
       $AUTH \<101112131415161718191a1b1c1d1e1f>);

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
  -> ends :: RadixIPsecLookup(here/32 0, $FAR $REMOTE 1 $SPI $ENCRYPT $AUTH 1 64, 0/0 2);
ends[1] -> IPsecESPEncap -> IPsecAES(1) -> IPsecAuthHMACSHA1(0)
  -> IPsecEncap(50) -> FixIPSrc(here)
  -> SetIPAddress($NEXT_HOP) -> ask_between;
ends[2] -> Discard;
ttl[1] -> ICMPError(site, timeexceeded) -> ask_site;
size[1] -> ICMPError(site, unreachable, needfrag, PMTU $MTU) -> ask_site;

outside -> IPFilter(allow ip proto 50 && src host $REMOTE && dst host here, deny all)
  -> ends[0] -> StripIPHeader
  -> signed :: IPsecAuthHMACSHA1(1) -> IPsecAES(0) -> IPsecESPUnencap
  -> CheckIPHeader
  -> IPFilter(allow src net $FAR && dst net site:ipnet, deny all)
  -> unwrapped :: Counter
  -> GetIPAddress(16) -> ask_site;
