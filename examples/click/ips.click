// Intrusion prevention: as the IDS, but packets that show an attack end here.
//
// IPFilter refuses addresses, services and flags that are never right. IPClassifier tells by the service which
// strings are looked for, RegexClassifier finds them, and packets with one are dropped. ARP and answers pass.
//
// Devices: 0, outside; 1, inside.
// Parameters: BLOCKED: a network from which nothing may come.
// Run it: netbricks instances create box --ports 2 && netbricks instances install box ips.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: refused.count, attacks.count.

define($BLOCKED 198.51.100.0/24);

FromDevice(0) -> frames :: Classifier(12/0806, 12/0800, -);
frames[0] -> to_inside :: ToDevice(1);
frames[1] -> CheckIPHeader(OFFSET 14) -> policy :: IPClassifier(src net $BLOCKED, -);
frames[2] -> Discard;

policy[0] -> refused :: Counter -> Discard;
policy[1] -> flags :: IPFilter(1 ip frag,
                               1 tcp opt syn && tcp opt fin,
                               1 tcp && dst port 23,
                               1 tcp && dst port 445,
                               0 all)
  -> services :: IPClassifier(dst tcp port 80 or dst tcp port 8080, dst udp port 53, -);
flags[1] -> refused;

// Requests for the web: traversal, injection, shells. Requests for names: labels that carry a tunnel's data.
services[0] -> web :: RegexClassifier('(?i)(\.\.|%2e%2e)(/|%2f)', '(?i)union(\s|%20|\+)+select', '\$\{jndi:',
                                      PAYLOAD_ONLY true);
services[1] -> names :: RegexClassifier('[a-z0-9]{50,63}', PAYLOAD_ONLY true);
services[2] -> to_inside;
web[0] -> attacks :: Counter -> Discard;
web[1] -> attacks;
web[2] -> attacks;
web[3] -> to_inside;
names[0] -> attacks;
names[1] -> to_inside;

FromDevice(1) -> ToDevice(0);
