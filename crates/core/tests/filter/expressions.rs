//! Expressions to compare: single primitives, texts that are wrong, and combinations drawn by a fixed seed.

/// Primitives, comparisons and short combinations.
#[rustfmt::skip]
const GOOD: &[&str] = &[
    "", "  ", "ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "igrp", "pim", "vrrp",
    "carp", "ah", "esp", "atalk", "aarp", "decnet", "lat", "sca", "moprc", "mopdl", "iso", "esis", "es-is",
    "isis", "is-is", "clnp", "l1", "l2", "iih", "lsp", "snp", "csnp", "psnp", "stp", "ipx", "netbeui",
    "host 10.1.0.1", "src host 10.1.0.1", "dst host 10.1.0.1", "src or dst host 10.1.0.1",
    "src and dst host 10.1.0.1", "dst and src 10.1.0.1", "src 10.1.0.1", "dst 10.2.0.2", "ip host 10.2.0.2",
    "arp host 10.2.0.2", "arp src 10.1.0.1", "rarp dst host 10.2.0.2", "host 10.1", "host 10", "host 0",
    "not host 10.1.0.1", "ip src or dst 10.1.0.1", "ip and not src 10.1.0.1", "host (10.1.0.1 or 10.9.9.9)",
    "net 10", "net 10.1", "net 10.1/16", "net 10.1.0.0/16", "net 10.0.0.0/8", "net 10.1.0.0 mask 255.255.0.0",
    "net 10.1 mask 255.255", "net 0.0.0.0/0", "net 192.168", "src net 10.2", "dst net 224.0.0.0/4", "net 0",
    "net 10.1.0.1", "net 10.1.0.1/32", "ip net 10", "arp net 10", "net 0x0a", "net 172.16.0.0/12",
    "not net 10", "net 65537", "net 010.1",
    "host 2001:db8::1", "src host 2001:db8::1", "ip6 host ff02::1", "dst ff02::1", "net 2001:db8::/32",
    "ip6 net 2001:db8::/33", "net 2001:db8:0:0::/64", "src net 2001:db8::/48", "net ::/0", "ip6 net ::/0",
    "net fe80::/10", "not net 2001:db8::/32", "src and dst net 2001:db8::/32", "host ::1", "host ::ffff:1.2.3.4",
    "net ff02::1/128", "net ff02::1", "host 2001:DB8::1",
    "ether host 02:00:00:00:00:01", "ether src 2:0:0:0:0:2", "ether dst 02-00-00-00-00-01",
    "ether host 0200.0000.0001", "ether host 020000000001", "ether dst host ff:ff:ff:ff:ff:ff",
    "ether src or dst 2:0:0:0:0:1", "ether src and dst 2:0:0:0:0:1", "not ether host 2:0:0:0:0:1",
    "wlan host 2:0:0:0:0:1", "fddi src 2:0:0:0:0:2", "tr dst 2:0:0:0:0:1", "link host 2.0.0.0.0.1",
    "broadcast", "multicast", "ether broadcast", "ether multicast", "ip broadcast", "ip multicast",
    "ip6 multicast", "not broadcast and not multicast",
    "port 80", "src port 80", "dst port 80", "tcp port 80", "tcp src port 443", "udp port 53", "udp dst port 53",
    "sctp port 80", "sctp dst port 5060", "port 0x50", "port 0120", "src and dst port 80", "src or dst port 53",
    "ip and port 80", "port http", "port domain", "udp port domain", "tcp port http",
    "port https", "port bootps or bootpc", "port ntp", "port mdns", "port www", "port ssh", "port telnet",
    "port sip", "sctp port sip", "port ftp-data", "port iscsi-target", "port snmp-trap", "port x11", "port imap2",
    "port 80 or 443", "port (80 or 443)", "port 80 or (443 or 53)", "tcp port 80 or 443 or 22", "not port 80",
    "port not 80", "port !80", "port 80 and not 443", "not port 80 or 443", "port 80 and (not 443)",
    "port 0", "port 65535", "tcp and not port 80", "port 53 or tcp", "port (53 or 80 and 1000)",
    "portrange 20-80", "portrange 80-20", "tcp portrange 20-80", "udp src portrange 50-60", "portrange 80",
    "portrange ftp-http", "portrange 20-http", "portrange 0-65535", "src portrange 1-1023",
    "dst portrange 1024-65535", "portrange http-https", "src and dst portrange 50-100", "not portrange 1-1023",
    "portrange 6000-6063 or 80", "sctp portrange 79-81",
    "proto 6", "ip proto 6", "ip6 proto 6", r"ip proto \tcp", r"ip6 proto \udp", r"proto \icmp", "proto ospf",
    "ip proto ospf", "ip proto eigrp", "ip6 proto ipv6-icmp", "ip6 proto 44", "ip proto 256", "proto 17 or 6",
    "ip proto gre", "ip proto (1 or 2)", "proto ipv6-frag", r"proto \esp", "ip proto 0x11", "proto rsvp or 1",
    "ether proto 0x0800", r"ether proto \ip", r"ether proto \arp", r"ether proto \ip6", "ether proto loopback",
    r"ether proto \stp", r"ether proto \ipx", r"ether proto \iso", r"ether proto \netbeui", "ether proto 6",
    r"ether proto \atalk", r"ether proto \aarp", "ether proto 0x42", "ether proto 1500", "ether proto 1501",
    "ether proto 0xaa", "ether proto 0xff", "ether proto 70000", "ether proto 0", "ether proto 0xfe",
    r"ether proto \decnet", r"ether proto \rarp or \arp", "ether proto 0x8864", "ether proto 0x8100",
    r"iso proto \clnp", r"iso proto \esis", r"iso proto \isis", "iso proto 0x83", "isis proto 17", "isis proto 99",
    "ip protochain 6", "ip6 protochain 6", "protochain 6", "ip6 protochain 17", r"ip6 protochain \udp",
    "protochain 51", "ip6 protochain 44", "ip6 protochain 59", "ip protochain 17", "ip6 protochain 43",
    "not ip6 protochain 6", "ip6 protochain 0", "ip6 protochain 60", "vlan and ip6 protochain 6",
    "mpls and protochain 6", "pppoes and protochain 6", "protochain 58 or tcp", "protochain 300",
    "vlan", "vlan 5", "vlan 6", "vlan 0", "vlan 4095", "vlan (5)", "not vlan", "vlan and ip", "vlan and ip6",
    "vlan and tcp port 80", "vlan 5 and vlan 6", "vlan and vlan", "vlan and vlan and ip", "vlan 5 or vlan 6",
    "vlan and vlan 6 and port 80", "ip or vlan and ip", "vlan and arp", "vlan and host 10.1.0.1",
    "not vlan and ip", "vlan or ip", "(vlan and tcp) or udp", "vlan and ether host 2:0:0:0:0:1",
    "vlan and ip[8] > 1", "vlan and tcp[0:2] = 1000", "vlan and iso", "vlan and ether[12:2] = 0x8100",
    "vlan and multicast", "vlan and ip multicast", "vlan and net 2001:db8::/32", 
    "vlan and llc", "port 80 or vlan and port 80", "vlan and vlan and vlan",
    "mpls", "mpls 1000", "mpls 3", "mpls and ip", "mpls and ip6", "mpls and mpls", "mpls and mpls 3",
    "mpls and mpls and ip", "mpls 1000 and tcp port 80", "mpls and host 10.1.0.1", "vlan and mpls and ip",
    "mpls and tcp[0:2] = 1000", "mpls and ip[8] = 64", "mpls and ether host 2:0:0:0:0:1", "mpls and multicast",
    "mpls and llc", "mpls or ip", "not mpls", "mpls and port 53", "mpls and ip6 host ff02::1", "mpls 0",
    "mpls and icmp6", "mpls and udp", "mpls and mpls 3 and udp port 53", "mpls 1000 and mpls and ip6",
    "pppoed", "pppoes", "pppoes 7", "pppoes 8", "pppoes and ip", "pppoes and ip6", "pppoes and tcp port 80",
    "pppoes 7 and host 10.1.0.1", "pppoes and iso", "pppoes and isis", "pppoes and clnp", "pppoes and decnet",
    "pppoes and stp", "pppoes and mpls", "pppoes and mpls and ip", "vlan and pppoes and ip", "pppoes or ip",
    "not pppoes", "pppoes and ether[0:2] = 0x21", "pppoes and ip[0] & 15 = 5", "pppoes and pppoes",
    "pppoes and ether proto 0x600", "pppoes and ipx", "pppoes and arp", "pppoes and port 80 or 443",
    "pppoes and ip multicast", "pppoes and net 10", "vlan 5 and pppoes 7 and udp",
    "geneve", "geneve 5", "geneve 6", "geneve 0xffffff", "geneve and ip", "geneve and ip6", "geneve 5 and tcp",
    "geneve and tcp port 80", "geneve and ether host 2:0:0:0:0:1", "geneve and vlan", "geneve and vlan 5 and ip",
    "geneve and mpls", "geneve and mpls and ip", "geneve and pppoes", "geneve and pppoes and ip6",
    "geneve and host 10.1.0.1", "geneve and multicast", "geneve and broadcast", "geneve and ether[0] = 2",
    "geneve and ip[8] = 64", "geneve and tcp[0:2] = 1000", "geneve and icmp6[0] = 135", "geneve and llc",
    "geneve and geneve", "geneve and net 2001:db8::/32", "geneve and arp", "geneve and decnet host 10.5",
    "geneve and iso", "geneve and byte 0 = 2", "geneve and port 53 or 80", "vlan and geneve", "mpls and geneve",
    "mpls and geneve and ip", "pppoes and geneve", "geneve and ip[2:2] - ip[0] > 20", "geneve and not ip",
    "geneve and ether src 2:0:0:0:0:2", "geneve and ip6[6] = 6", "geneve 5 and udp portrange 50-60",
    "geneve and len > 100 and tcp[tcpflags] & tcp-syn != 0",
    "llc", "llc i", "llc s", "llc u", "llc rr", "llc rnr", "llc rej", "llc ui", "llc ua", "llc disc", "llc sabme",
    "llc test", "llc xid", "llc frmr", "not llc", "llc or ip",
    "decnet host 10.5", "decnet src 10.5", "decnet dst 10.1", "decnet src and dst 10.5", "decnet host 10361",
    "decnet host 5", "not decnet host 10.5",
    "less 60", "greater 60", "len < 60", "len <= 60", "len > 60", "len >= 60", "len = 60", "len != 60",
    "60 < len", "len - 14 > 40", "length = 74", "len % 2 = 1", "len / 10 = 7", "len << 1 > 100", "len = len",
    "byte 12 = 8", "byte 0 > 1", "byte 0 < 2", "byte 200 = 1",
    "ether[0] & 1 != 0", "ether[0] & 1 = 0 and ip[16] >= 224", "ip[0] & 0xf != 5", "ip[6:2] & 0x1fff = 0",
    "ip[6:2] & 0x3fff != 0", "ip[8] < 64", "ip[2:2] > 576", "ip[12:4] = 0x0a010001", "ip[9] == 6", "ip[9] != 6",
    "tcp[13] & 2 != 0", "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn", "tcp[tcpflags] == tcp-fin|tcp-ack",
    "tcp[tcpflags] & (tcp-rst|tcp-push|tcp-urg|tcp-ece|tcp-cwr) != 0", "tcp[0:2] = 80", "tcp[20:4] = 0x64617461",
    "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
    "udp[4:2] > 12", "udp[8:4] = 0x646e7300", "udp[2:2] == 53", "icmp[icmptype] = icmp-echo",
    "icmp[icmptype] != icmp-echo and icmp[icmptype] != icmp-echoreply", "icmp[icmpcode] = 1",
    "icmp[0] == icmp-unreach", "icmp6[icmp6type] = icmp6-neighborsolicit", "icmp6[icmp6type] == icmp6-echo",
    "icmp6[icmp6code] = 0", "igmp[0] = 0x11", "sctp[0:2] = 80", "pim[0] & 0xf0 = 0x20", "vrrp[0] = 0x21",
    "carp[1] = 1", "igrp[1] = 1", "arp[6:2] = 1", "rarp[7] = 1", "arp[24:4] = 0x0a020002", "ip6[6] = 6",
    "ip6[40] = 6", "ip6[4:2] > 20", "decnet[2] = 2", "lat[0] = 1", "atalk[0] = 1", "moprc[1] = 2", "mopdl[1] = 2",
    "sca[0] = 1", "link[12:2] = 0x800", "ether[12:2] = 0x86dd", "ppp[0] = 2", "slip[0] = 2", "ether[14:4] > 5",
    "ip[ip[0] & 15] = 0", "ip[(ip[0] & 15) * 4] = 8", "ether[14 + (ether[14] & 15) * 4] = 8",
    "tcp[(tcp[12] & 0xf0) >> 2:4] = 0x64617461", "udp[tcp[0]] = 1", "ip[tcp[0]] = icmp[udp[1]]",
    "ether[-1] = 0", "ip[-1] = 0", "tcp[-1] = 1", "tcp[-4:4] = 0", "udp[0 - 8] = 64", "tcp[0xfffffffe] = 1",
    "ip[0x10000] = 0", "ether[0xffffffff] = 0", "ether[100] = 1 or ip", "not ether[100] = 1",
    "1 = 1", "1 = 2", "1 != 2", "0xffffffff > 1", "1 - 2 = 0xffffffff", "-1 = 4294967295", "- 1 > 5", "-len < 60",
    "- - 5 = 5", "1 + 2 * 3 = 7", "(1 + 2) * 3 = 9", "7 - 2 - 1 = 4", "8 / 2 / 2 = 2", "1 << 2 << 3 = 32",
    "256 >> 4 = 16", "1 | 2 & 3 = 3", "3 & 1 | 4 = 5", "1 + 1 << 2 = 8", "1 | 2 ^ 3 = 1", "1 ^ 2 | 3 = 2",
    "5 % 2 * 3 = 5", "5 * 3 % 2 = 5", "5 % 3 % 2 = 0", "7 ^ 3 ^ 1 = 5", "-1 ^ 2 = -3", "-3 % 2 = 1", "2 * -3 + 6 = 0",
    "10 - 5 % 3 - 1 = 9", "ip[0] ^ 0x45 = 0", "ip[8] % 2 = 0", "1 << len = 0", "len >> len = 0", "6 / 4 * 2 = 2",
    "ip[8] / ip[1] = 1", "ip[8] % ip[1] = 1", "ip[1] / ip[8] = 0", "ip[0] > ip[1]", "ip[0] <= ip[8]",
    "ip[0] < tcp[0]", "tcp[0:2] > tcp[2:2]", "udp[0:2] = udp[2:2]", "ether[0:4] = ether[6:4]", "tcp[0] = icmp[0]",
    "ip[0] + ip6[0] = 0", "(ip[0] & 0xf) + (ip[8] - 1) * 2 > 100", "1 + (2 + (3 + (len + 4))) > 50",
    "ip[0]=0x45", "ip [ 0 ] = 0x45", "tcp[ 13 ]&2!=0", "(ip[0] = 0x45)", "((ip[0]) = (0x45))", "(1)=1",
    "ip[200] >= 0", "ip[200] & 0 = 0", "ip[200] & 0 = 1", "ip[200:4] > 0xffffffff", "ip[200] < 0",
    "tcp and udp", "tcp or udp and icmp", "tcp or (udp and icmp)", "tcp && udp || icmp", "!tcp", "! tcp && ip",
    "not (tcp or udp)", "not not tcp", "not tcp and udp", "not(tcp)and(ip)", "tcp or not udp", "(((tcp)))",
    "ip and (tcp port 80 or udp port 53) and not host 10.9.9.9", "arp or rarp or icmp or icmp6",
    "host 10.1.0.1 and not 10.2.0.2", "host 10.1.0.1 and (10.2.0.2 or 224.0.0.5)", "ip host 10.1.0.1 and not 10.9.9.9",
    "net 10 or 192.168 or 172.16.0.0/12", "host 10.1.0.1 or ::1 or 2001:db8::1", "port 80 or len > 60",
    "port 80 or 443 + 1 = 444", "port 80 or (443) = 443", "port 80 or ((443) or 53)", "port ((80))", "port 80 or (443 or 22) or 53",
    "port 80 or (not 443) or 22", "port (80 or 443) or 22", "portrange http-domain", "1 + ip[0] = 0x46",
    "ip[0] + tcp[0] > 70", "- ip[0] + 5 > 1", "tcp[udp[0]] + arp[0] = 1", "ip[1 + tcp[0]] = 4", "2 <= 7 | udp[4:2]",
    "len / tcp[0:2] = 1", "0 - 1 = ip[0] - 0x46",
    "src host 10.1.0.1 and dst port 80", "tcp src port 80 or 443 and not dst port 5",
    "port 80 or 443 and tcp or udp", "ip proto 6 or 17",
    "ether proto 0x800 or 0x86dd", "ether host 2:0:0:0:0:1 or 2:0:0:0:0:2", "tcp\nor\tudp", "tcp port 80\r\n",
    "dst port 80 or 443 or 53 and src net 10 or 192.168", "tcp[13]=2 or udp port 53 or vlan and ip",
];

/// Texts that tcpdump refuses.
#[rustfmt::skip]
const WRONG: &[&str] = &[
    "tcp or 80", "tcp 80", "10.0.0.1", "80", "(80)", "5 + 5", "len", "tcp and", "and tcp", "()", "(tcp", "tcp)",
    "ip[0", "ip[0:3] = 1", "ip[0:(2)] = 1", "ip[] = 1", "ip[0]", "len-14 > 5", "1-2=3", "1 = 1 = 1", "4 => 3",
    "vlan 4096", "mpls 1048576", "pppoes 65536", "geneve 16777216", "vlan 5 6", "vlan 0x2005 & 1 = 1", "vlan len", "less (5)", "less len",
    "host", "port", "src", "src or 5", "src and dst or port 5", "tcp src 1.2.3.4", "tcp host 1.2.3.4",
    "ip src ::1", "ip6 host 1.2.3.4", "host ::1/64", "net ::1/64", "net 2001:db8::/129", "icmp6 host ::1",
    "gateway 1.2.3.4", "gateway foo", "inbound", "outbound", "ifindex 3", "port 09", "port 4294967296",
    "port 70000", "portrange 80-70000", "port 80-90", "udp port http", "tcp port ntp", "sctp port http",
    "net 10/8", "net 10 mask 255.0.0.0", "net 1.2.3.4/24", "host 1.2.3.4/24", "host 1.2.3.0/24", "net 1.2.3.4/33",
    "net 0x0a.1", "host 256.1.1.1", "net 1.2.3.0/24 mask", "host 00:11:22:33:44:55", "ether host 1.2.3.4",
    "ether host 1.2.3", "ether net 1.2.3.4", "ether port 5", "ether host ::1", "iso proto clnp", "tcp proto 5",
    r"ip proto \icmp6", "ip proto tcp", "src proto 6", "arp proto 5", "ah proto 5", r"isis proto \foo",
    "tcp protochain 5", "geneve and protochain 6", "radio", "radio[0] = 1", "type mgt", "wlan addr1 1:2:3:4:5:6",
    "lane", "vpi 3", "oam", "ifname eth0", "on eth0", "tcp AND udp", "TCP", "tcp;udp", "tcp,udp", "link", "ether",
    "$5", "tcp broadcast", "tcp multicast", "ip6 broadcast", "arp multicast", "atalk host 5", "decnet port 5",
    "decnet host 0x10.5", "decnet host foo", "decnet 10.5", "icmp port 5", "icmp proto 5", "lat host 1.2.3.4",
    "ah[0] = 1", "iso[0] = 1", "stp[0] = 1", "aarp[0] = 1", "isis[0] = 1", "mpls and arp", "mpls and iso",
    "mpls and vlan", "mpls and pppoes", "mpls and decnet host 1.2", "pppoes and vlan", "pppoes and broadcast",
    "pppoes and multicast", "pppoes and llc", "pppoes and ether host 1:2:3:4:5:6", "llc foo", "1/0 = 1", "1%0 = 1",
    "1<<32 = 1", "1>>32 = 1", "port 1 or len > 5 or 6", "(port 80 or tcp) or 6", "port 80 or (443 or tcp)",
    "port 80 or (tcp or 443)", "port (80 or tcp)", "port 80 + 1 = 3", "port nonesuch", "host example",
    "net example", "ether host example", "tcp port", "not", "!", "tcp not udp", "tcp udp", "ip host", "ip[1.2] = 1",
    "host 1.2.3.4.5", "ip proto", "portrange", "portrange 5-", "host 1:2:3", "byte 5 = len", "byte tcp = 5",
    "ip6 port 80", "(port 80) or 443", "(tcp and port 80) or 53", "not (port 80) or 443", "portrange domain", "portrange http",
    "ether proto tcp", "ether proto nonesuch", "proto nonesuch", "ip[0] = host 5", "tcp == udp", "(tcp) = 5",
    "port 80 or", "not and", "(((tcp))", "tcp or or udp", "vlan (5", "ip[0]]=5", "proto 10.1", "port 10.1", "port ::1",
];

/// A fixed sequence of numbers (Knuth's MMIX generator).
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// Conditions joined at random, without those whose meaning after `geneve` tcpdump leaves open.
fn combination(sequence: &mut Sequence) -> String {
    let plain: Vec<&str> = GOOD
        .iter()
        .copied()
        .filter(|text| !text.trim().is_empty() && !text.contains("geneve") && !text.contains("protochain"))
        .collect();
    let mut text = String::new();
    for number in 0..2 + sequence.below(4) {
        if number > 0 {
            text += sequence.pick(&[" and ", " or ", " && ", " || ", " and not ", " or not "]);
        }
        if sequence.below(3) == 0 {
            text += sequence.pick(&plain);
        } else {
            text += &format!("({})", sequence.pick(&plain));
        }
    }
    text
}

/// A computation at random, compared with another.
fn comparison(sequence: &mut Sequence) -> String {
    const OPERANDS: &[&str] = &[
        "1",
        "2",
        "7",
        "0xff",
        "len",
        "ip[8]",
        "ip[2:2]",
        "tcp[0:2]",
        "ether[12:2]",
        "ether[14:4]",
        "udp[4:2]",
        "(ip[0] & 0xf)",
        "-3",
        "(len - 14)",
        "ip6[4:2]",
        "ether[len % 20]",
    ];
    let side = |sequence: &mut Sequence| {
        let mut text = sequence.pick(OPERANDS).to_owned();
        for _ in 0..sequence.below(4) {
            text += sequence.pick(&[" + ", " - ", " * ", " / ", " % ", " & ", " | ", " ^ ", " << ", " >> "]);
            text += sequence.pick(OPERANDS);
        }
        text
    };
    let left = side(sequence);
    let relation = sequence.pick(&[" = ", " != ", " < ", " <= ", " > ", " >= "]);
    left + relation + &side(sequence)
}

/// All expressions, the drawn ones last.
pub(crate) fn all() -> Vec<String> {
    let mut all: Vec<String> = GOOD.iter().chain(WRONG).map(|&text| text.to_owned()).collect();
    let mut sequence = Sequence(1);
    all.extend((0..250).map(|_| combination(&mut sequence)));
    all.extend((0..150).map(|_| comparison(&mut sequence)));
    all
}

/// Texts of which pieces make any text.
pub(crate) fn pieces() -> Vec<&'static str> {
    GOOD.iter().chain(WRONG).flat_map(|text| text.split(' ')).collect()
}

/// The expressions that compile.
pub(crate) fn good() -> &'static [&'static str] {
    GOOD
}
