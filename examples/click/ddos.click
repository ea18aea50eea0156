// DDoS prevention: takes floods out of the traffic to a server, and lets the rest pass.
//
// IPFilter refuses what no honest host sends: forged addresses, fragments, answers of services that floods are
// reflected by, and services that the server does not have. New connections, pings and names are held to rates.
//
// Devices: 0, outside; 1, the server's side. Packets from the server pass.
// Parameters: SERVER; SYNS, PINGS: new connections and pings a second.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box ddos.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: refused.count, syns.count, pings.count: what ended, by cause; passed.count; syn_rate.rate can be written.

define($SERVER 203.0.113.80, $SYNS 1000, $PINGS 10);

FromDevice(0) -> frames :: Classifier(12/0806, 12/0800, -);
frames[0] -> to_server :: ToDevice(1);
frames[1] -> CheckIPHeader(OFFSET 14)
  -> filter :: IPFilter(1 src net 0.0.0.0/8 or src net 127.0.0.0/8 or src net 10.0.0.0/8,
                        1 src net 192.168.0.0/16 or src net 172.16.0.0/12 or src net 224.0.0.0/3,
                        1 src host $SERVER,
                        1 not dst host $SERVER,
                        1 ip frag,
                        1 udp && (src port 19 or src port 53 or src port 123 or src port 389 or src port 1900),
                        1 udp && src port 11211,
                        0 tcp && (dst port 80 or dst port 443),
                        0 icmp type echo,
                        1 all)
  -> kinds :: IPClassifier(tcp opt syn && not tcp opt ack, icmp, -);
frames[2] -> Discard;
filter[1] -> refused :: Counter -> Discard;

passed :: Counter -> to_server;
kinds[0] -> syn_rate :: RatedSplitter($SYNS, BURST_DURATION 1s) -> passed;
kinds[1] -> ping_rate :: RatedSplitter($PINGS, BURST_DURATION 1s) -> passed;
kinds[2] -> passed;
syn_rate[1] -> syns :: Counter -> Discard;
ping_rate[1] -> pings :: Counter -> Discard;

FromDevice(1) -> ToDevice(0);
