// Firewall: ten rules of IPFilter decide which IPv4 packets may pass from the outside to the inside.
//
// Hosts inside may open any connection, except that nobody may send with a foreign address. The outside reaches one
// web server and one name server, gets answers to connections from inside, and may ping. ARP passes both ways.
//
// Devices: 0, outside; 1, inside.
// Parameters: INSIDE: the network inside; WEB, DNS: the servers inside.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box firewall.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: refused_in.count and refused_out.count; writing inward.config replaces the rules while it runs.

define($INSIDE 10.0.0.0/8, $WEB 10.0.0.80, $DNS 10.0.0.53);

// Output 1 has what is refused.
inward :: IPFilter(1 src net $INSIDE,                                     // 0: forged: these live inside
                   1 src net 127.0.0.0/8 or src net 224.0.0.0/3,          // 1: no address of a host
                   1 ip frag,                                             // 2: its ports cannot be seen
                   allow dst host $WEB && tcp dst port 80,                // 3
                   allow dst host $WEB && tcp dst port 443,               // 4
                   allow dst host $DNS && udp dst port 53,                // 5
                   allow dst net $INSIDE && tcp opt ack,                  // 6: answers to connections from inside
                   allow dst net $INSIDE && udp src port 53,              // 7: answers of name servers
                   allow dst net $INSIDE && icmp type echo,               // 8
                   1 all);                                                // 9
outward :: IPFilter(allow src net $INSIDE, 1 all);

elementclass Guard { input -> kinds :: Classifier(12/0806, 12/0800, -);
  kinds[0] -> [0] output;
  kinds[1] -> CheckIPHeader(OFFSET 14) -> [1] output;
  kinds[2] -> Discard;
}

outside :: Guard;
inside :: Guard;
to_outside :: ToDevice(0);
to_inside :: ToDevice(1);

FromDevice(0) -> outside -> to_inside;
FromDevice(1) -> inside -> to_outside;
outside[1] -> inward -> to_inside;
inside[1] -> outward -> to_outside;
inward[1] -> refused_in :: Counter -> Discard;
outward[1] -> refused_out :: Counter -> Discard;
