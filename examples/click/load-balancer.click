// Load balancer: spreads flows over two paths, and tells them apart by the Ethernet source address.
//
// HashSwitch chooses a path by the sum of addresses and ports, so that a flow keeps its path; UDP begins with the other
// one, so that the protocol counts too. Fragments have no ports in all parts and go by their addresses. Each path
// takes CAPACITY packets a second; what is above goes by the spare path.
//
// Devices: 0, clients; 1, a switch that sorts by the source address.
// Parameters: MAC0 to MAC2: source addresses of the two paths and the spare; NEXT: the next hop; CAPACITY.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box load-balancer.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: path0/sent.count, path1/sent.count, spare.count.

define($MAC0 02:00:00:00:01:00, $MAC1 02:00:00:00:01:01, $MAC2 02:00:00:00:01:02,
       $NEXT 02:00:00:00:00:fe, $CAPACITY 1000000);

elementclass Path { $source |
  input -> limit :: RatedSplitter($CAPACITY) -> sent :: Counter -> EtherRewrite($source, $NEXT) -> output;
  limit[1] -> [1] output;
}

path0 :: Path($MAC0);
path1 :: Path($MAC1);
spare :: Counter;
to_paths :: ToDevice(1);

// Headers without options: protocol, flags and offset of fragments.
FromDevice(0) -> kinds :: Classifier(12/0800 14/45 20/0000%3fff 23/06,
                                     12/0800 14/45 20/0000%3fff 23/11,
                                     12/0800, -);
kinds[0] -> by_tcp :: HashSwitch(26, 12);
kinds[1] -> by_udp :: HashSwitch(26, 12);
kinds[2] -> by_address :: HashSwitch(26, 8);
kinds[3] -> to_paths;

by_tcp[0] -> path0;
by_tcp[1] -> path1;
by_udp[0] -> path1;
by_udp[1] -> path0;
by_address[0] -> path0;
by_address[1] -> path1;

path0 -> to_paths;
path1 -> to_paths;
path0[1] -> spare -> EtherRewrite($MAC2, $NEXT) -> to_paths;
path1[1] -> spare;

FromDevice(1) -> ToDevice(0);
