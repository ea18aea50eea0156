// Intrusion detection: looks for signs of attacks, counts and reports them, and passes all packets unchanged.
//
// Classifier finds frames with forged ARP answers, IPClassifier scans and odd flags, RegexClassifier strings in what
// TCP and UDP carry. Each kind of alert has a counter and a line of chatter for its packets.
//
// Devices: 0, outside; 1, inside. Both ways are watched.
// Parameters: GATEWAY_IP, GATEWAY_MAC: the router whose address nobody else may claim (hexadecimal).
// Run it: netbricks instances create box --ports 2 && netbricks instances install box ids.click
//   or as the function `click` of a chain file: see README.md.
// Handlers: inward/shell.count and the like: arp, scan, fragments, traversal, shell, injection.

define($GATEWAY_IP 0a000001, $GATEWAY_MAC 020000000010);

// An alert: what it is, in a line for each packet, and how often it was.
elementclass Alert { $name | input -> Print($name, 0) -> output; }

elementclass Watch {
  input -> frames :: Classifier(12/0806 20/0002 28/$GATEWAY_IP 22/$GATEWAY_MAC,
                                12/0806 20/0002 28/$GATEWAY_IP, 12/0800, -);
  done :: Null -> output;
  frames[0] -> done;
  frames[1] -> arp :: Counter -> Alert("forged ARP answer") -> done;
  frames[2] -> MarkIPHeader(14)
    -> headers :: IPClassifier(ip frag && (tcp or ip proto icmp),
                               tcp opt fin && tcp opt syn,
                               tcp opt fin && tcp opt psh && tcp opt urg,
                               tcp && not tcp opt ack && not tcp opt syn && not tcp opt rst,
                               tcp or udp, -);
  frames[3] -> done;
  headers[0] -> fragments :: Counter -> Alert("fragment") -> done;
  headers[1] -> scan :: Counter -> Alert("scan") -> done;
  headers[2] -> scan;
  headers[3] -> scan;
  headers[4] -> strings :: RegexClassifier('(?i)\.\./\.\./', '/bin/(ba|da|k|z)?sh|cmd\.exe',
                                           '(?i)union\s+(all\s+)?select', PAYLOAD_ONLY true);
  headers[5] -> done;
  strings[0] -> traversal :: Counter -> Alert("path traversal") -> done;
  strings[1] -> shell :: Counter -> Alert("shell") -> done;
  strings[2] -> injection :: Counter -> Alert("SQL injection") -> done;
  strings[3] -> done;
}

FromDevice(0) -> inward :: Watch -> ToDevice(1);
FromDevice(1) -> outward :: Watch -> ToDevice(0);
