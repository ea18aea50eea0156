// Multicast router: passes IPv4 multicast to a network whose hosts have asked for it by IGMP.
//
// IGMP knows from reports which groups have members, asks regularly, and asks again when a host leaves.
// IPMulticastEtherEncap finds the Ethernet address of a group.
//
// Devices: 0, where the sources are; 1, the hosts.
// Parameters: ADDRESS, MAC: ours on the hosts' side; GROUPS: the most groups.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box multicast.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: igmp.groups, igmp.queries, igmp.querier, passed.count.

define($ADDRESS 192.168.1.1, $MAC 02:00:00:00:00:11, $GROUPS 1024);

igmp :: IGMP($ADDRESS, CAPACITY $GROUPS);

FromDevice(0) -> Classifier(12/0800) -> Strip(14) -> CheckIPHeader
  -> IPFilter(allow dst net 224.0.0.0/4, deny all)
  -> DecIPTTL(MULTICAST true) -> [1] igmp;
FromDevice(1) -> Classifier(12/0800) -> Strip(14) -> CheckIPHeader
  -> IPFilter(allow ip proto igmp, deny all) -> [0] igmp;

encap :: IPMulticastEtherEncap(0x0800, $MAC) -> ToDevice(1);
igmp[0] -> passed :: Counter -> encap;
igmp[1] -> encap;
