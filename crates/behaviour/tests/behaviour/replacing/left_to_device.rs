//! Work that a sender left to the device: the result equals that of a sender that did it itself.

use super::*;

/// Leaves the checksum as a sender does: the pseudo-header's sum in the field.
fn leave(frame: &mut [u8], transport: usize, field: usize) {
    let checksum = u16::from_be_bytes([frame[field], frame[field + 1]]);
    frame[field..field + 2].fill(0);
    let segment = Sum::ZERO.add_bytes(&frame[transport..]).fold();
    let pseudo = Sum::ZERO.add16(!checksum).add16(!segment).fold();
    frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
}
/// Completes the checksum as a device does.
fn complete(frame: &mut [u8], offload: Offload) {
    let start = usize::from(offload.checksum_start);
    let field = start + usize::from(offload.checksum_offset);
    let checksum = Sum::ZERO.add_bytes(&frame[start..]).finish();
    frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
}
/// The node's result for a packet with that offload: frame and offload, or the drop reason.
fn pass(
    mut node: Box<dyn Node>,
    pool: &Pool,
    frame: &[u8],
    offload: Offload,
) -> Result<(Vec<u8>, Offload), DropReason> {
    let (mut batch, mut cx) = (Batch::new(), DetachedContext::new(pool.clone()));
    let mut packet = pool.packet(frame).unwrap();
    packet.set_offload(offload);
    assert!(batch.push(packet).is_ok());
    node.process(0, &mut batch, &mut cx);
    let drops = cx.take_drops();
    let result = batch.get(0).map(|packet| (packet.data().to_vec(), packet.offload()));
    result.ok_or_else(|| *DropReason::ALL.iter().find(|reason| drops.of(**reason).packets == 1).unwrap())
}
fn node(pool: &Pool, part: usize) -> Box<dyn Node> {
    let worker = harness::worker(pool);
    let made = match part {
        0 => compose(&worker, |input| {
            input
                .parse::<Link>()
                .parse::<Ip>()
                .resize(|_, replace| replace.options(&[7, 7, 4, 0, 0, 0, 0]))
                .done()
        }),
        1 => compose(&worker, |input| {
            input
                .parse::<Link>()
                .parse::<Ip>()
                .parse::<Tcp>()
                .resize(|_, replace| replace.options(&[3, 3, 7, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]))
                .done()
        }),
        2 => compose(&worker, |input| {
            input
                .parse::<Link>()
                .parse::<Ip>()
                .parse::<Tcp>()
                .resize(|_, replace| replace.payload(1..1, b"12345"))
                .done()
        }),
        3 => compose(&worker, |input| {
            input
                .parse::<Link>()
                .parse::<Ip>()
                .parse::<Udp>()
                .resize(|_, replace| replace.payload(1..1, b"12345"))
                .done()
        }),
        4 => compose(&worker, |input| input.parse::<Ethernet>().insert(|_| Vlan::new(7, 0x0800)).done()),
        _ => compose(&worker, |input| input.parse::<Ethernet>().parse::<Vlan>().remove().done()),
    };
    made.unwrap()
}

#[test]
fn a_checksum_is_completed_where_it_is_now() {
    let pool = harness::pool();
    let base = Shape { payload: b"some bytes".to_vec(), ..Shape::default() };
    let udp = Shape { transport: UDP, ..base.clone() };
    let tagged = Shape { link: 1, ..base.clone() };
    let spliced = |shape: &Shape| {
        let mut payload = shape.payload.clone();
        payload.splice(1..1, *b"12345");
        Shape { payload, ..shape.clone() }
    };
    let options = vec![(3, vec![7]), (8, vec![0, 0, 0, 1, 0, 0, 0, 2])];
    let route = vec![(7, vec![4, 0, 0, 0, 0])];
    let cases = [
        (0, base.clone(), Shape { ip_options: route, ..base.clone() }),
        (1, base.clone(), Shape { tcp_options: options, ..base.clone() }),
        (2, base.clone(), spliced(&base)),
        (3, udp.clone(), spliced(&udp)),
        (4, base.clone(), tagged.clone()),
        (5, tagged.clone(), base.clone()),
    ];
    for (part, before, after) in cases {
        let transport = if before.link == 1 { 38 } else { 34 };
        let offset = if before.transport == UDP { 6 } else { 16 };
        let mut frame = before.build();
        leave(&mut frame, transport, transport + offset);
        let offload = Offload {
            needs_checksum: true,
            checksum_start: transport as u16,
            checksum_offset: offset as u16,
            ..Offload::default()
        };
        let (mut out, offload) = pass(node(&pool, part), &pool, &frame, offload).unwrap();
        assert!(offload.needs_checksum);
        complete(&mut out, offload);
        assert_eq!(out, after.build(), "part {part}");
    }
}

/// New addresses and ports, of both versions.
fn renumber(input: Input) -> impl Function {
    input
        .parse::<Link>()
        .parse::<Ip>()
        .transform(|p| {
            let v6 = p.flow_key().source().is_ipv6();
            let [source, destination] =
                if v6 { ["2001:db8:7::1", "2001:db8:8::2"] } else { ["203.0.113.77", "198.51.100.8"] };
            p.set_source(source.parse().unwrap()).unwrap();
            p.set_destination(destination.parse().unwrap()).unwrap();
            p.set_source_port(61_234).unwrap();
            p.set_destination_port(5_353).unwrap();
        })
        .done()
}

#[test]
fn addresses_and_ports_are_carried_into_what_is_there() {
    let pool = harness::pool();
    let worker = harness::worker(&pool);
    let node = || compose(&worker, renumber).unwrap();
    for (link, v6, extended, transport) in [
        (0, false, false, TCP),
        (1, false, false, UDP),
        (0, true, false, TCP),
        (1, true, false, UDP),
        (0, true, true, TCP),
        (0, false, false, UDP),
    ] {
        let shape =
            Shape { link, v6, extended, transport, payload: b"some bytes".to_vec(), ..Shape::default() };
        let mut frame = shape.build();
        let (whole, _) = pass(node(), &pool, &frame, Offload::default()).unwrap();
        assert_eq!(checksums::wrong(&whole), Vec::<String>::new());
        // The transport's header: 20 or 8 bytes before the payload.
        let (size, offset) = if transport == UDP { (8, 6) } else { (20, 16) };
        let start = frame.len() - shape.payload.len() - size;
        leave(&mut frame, start, start + offset);
        let offload = Offload {
            needs_checksum: true,
            checksum_start: start as u16,
            checksum_offset: offset as u16,
            ..Offload::default()
        };
        let (mut out, offload) = pass(node(), &pool, &frame, offload).unwrap();
        complete(&mut out, offload);
        assert_eq!(out, whole, "{shape:?}");
        // A checksum that is left to the device elsewhere, in the payload, is not the header's.
        let inside = Offload { checksum_start: offload.checksum_start + 8, ..offload };
        let (out, _) = pass(node(), &pool, &shape.build(), inside).unwrap();
        assert_eq!(out, whole, "{shape:?}");
    }
}

#[test]
fn segments_are_as_long_as_their_sender_made_them_and_datagrams_end_where_they_did() {
    let pool = harness::pool();
    let frame = Shape { payload: vec![5; 900], ..Shape::default() };
    let udp = Shape { transport: UDP, ..frame.clone() }.build();
    let (frame, size) = (frame.build(), 400);
    let left = |gso| Offload { gso, gso_size: size, ..Offload::default() };
    for (part, gso, frame, expected) in [
        (0, GsoKind::TcpV4, &frame, Ok(size - 8)),
        (1, GsoKind::TcpV4, &frame, Ok(size - 16)),
        (2, GsoKind::TcpV4, &frame, Ok(size)),
        (0, GsoKind::Udp, &udp, Ok(size)),
        (3, GsoKind::Udp, &udp, Err(DropReason::NoOffload)),
    ] {
        let passed = pass(node(&pool, part), &pool, frame, left(gso));
        assert_eq!(passed.map(|(_, offload)| offload.gso_size), expected, "part {part}");
    }
    let short = Offload { gso_size: 8, ..left(GsoKind::TcpV4) };
    assert_eq!(pass(node(&pool, 1), &pool, &frame, short), Err(DropReason::NoOffload));
}

#[test]
fn a_checksum_around_one_that_is_not_complete_can_not_follow() {
    let pool = harness::pool();
    let mut frame = in_tunnel(b"some bytes");
    leave(&mut frame, 84, 100);
    let offload =
        Offload { needs_checksum: true, checksum_start: 84, checksum_offset: 16, ..Offload::default() };
    let node = || compose(&harness::worker(&pool), tunnelled).unwrap();
    assert_eq!(pass(node(), &pool, &frame, offload), Err(DropReason::NoOffload));
    // Over IPv4 a tunnel need not have one.
    frame[40..42].fill(0);
    let (mut out, offload) = pass(node(), &pool, &frame, offload).unwrap();
    complete(&mut out, offload);
    assert_eq!(checksums::wrong(&out), Vec::<String>::new());
}

#[test]
fn a_device_checksum_at_an_unknown_place_is_refused() {
    let pool = harness::pool();
    let frame = Shape { payload: vec![5; 90], ..Shape::default() }.build();
    for (part, checksum_start, checksum_offset) in [(1, 20, 16), (1, 60, 16), (2, 34, 6), (0, 20, 16)] {
        let offload = Offload { needs_checksum: true, checksum_start, checksum_offset, ..Offload::default() };
        assert_eq!(pass(node(&pool, part), &pool, &frame, offload), Err(DropReason::NoOffload));
    }
}
