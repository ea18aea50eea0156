//! Packets of which a capture holds only the beginning, and segments whose length is not stated.

use netbricks_core::buffer::{Batch, GsoKind, Offload, Packet, Pool};
use netbricks_core::packet::stack::LengthSlack;
use netbricks_core::packet::{Ethernet, Ip, Ipv4, Link, Tcp, Udp, protocol};
use netbricks_core::view::IpRewrite;
use netbricks_core::{DetachedContext, DropReason, Function, Input, Operator, Worker, compose};
use netbricks_testkit::build::ethernet;

/// Runs a function over one packet: the rest of it, or the reason for which it was dropped.
fn run<F: Function>(
    packet: Packet,
    pool: &Pool,
    function: impl FnOnce(Input) -> F,
) -> Result<Packet, DropReason> {
    let worker = Worker::new(0, 1, pool.clone());
    let mut node = compose(&worker, function).unwrap();
    let mut cx = DetachedContext::new(pool.clone());
    let mut batch = Batch::new();
    assert!(batch.push(packet).is_ok());
    node.process(0, &mut batch, &mut cx);
    assert_eq!(batch.bytes(), batch.iter().map(|packet| packet.wire_len() as u64).sum::<u64>());
    batch.pop().ok_or_else(|| {
        let drops = cx.take_drops();
        let (reason, count) = drops.iter().next().unwrap();
        assert_eq!(count.packets, 1);
        reason
    })
}

/// A frame cut to `kept` bytes.
fn cut(frame: &[u8], kept: usize, pool: &Pool) -> Packet {
    let mut packet = pool.packet(&frame[..kept]).unwrap();
    packet.set_missing((frame.len() - kept) as u32);
    packet
}

#[test]
fn headers_go_on_and_come_off_a_cut_packet_and_lengths_follow() {
    let pool = Pool::builder().frames(16).build().unwrap();
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(&[7; 600]).build().unwrap();
    fn tunnel(input: Input) -> impl Function {
        input
            .parse::<Ethernet>()
            .parse::<Ipv4>()
            .insert(|packet| {
                let inner = packet.header();
                let payload = usize::from(inner.total_length()) - 20;
                Ipv4::new(inner.source(), inner.destination(), protocol::UDP, payload)
            })
            .done()
    }
    fn untunnel(input: Input) -> impl Function {
        input.parse::<Ethernet>().parse::<Ipv4>().parse::<Ipv4>().remove().done()
    }
    let whole = run(pool.packet(&frame).unwrap(), &pool, tunnel).unwrap();
    for kept in [34, 42, 100, frame.len() - 1] {
        let long = run(cut(&frame, kept, &pool), &pool, tunnel).unwrap();
        assert_eq!(long.data(), &whole.data()[..kept + 20], "{kept}");
        assert_eq!(long.wire_len(), whole.len());
        let again = run(long, &pool, untunnel).unwrap();
        assert_eq!((again.data(), again.wire_len()), (&frame[..kept], frame.len()));
    }
}

#[test]
fn views_tell_what_was_on_the_wire_and_payloads_end_with_what_is_here() {
    let pool = Pool::builder().frames(16).build().unwrap();
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(&[7; 600]).build().unwrap();
    for kept in [42, 100, frame.len()] {
        let packet = run(cut(&frame, kept, &pool), &pool, |input| {
            input
                .parse::<Link>()
                .parse::<Ip>()
                .transform(|packet| packet.set_source([10, 9, 9, 9].into()).unwrap())
                .parse::<Udp>()
                .inspect(move |packet| {
                    assert_eq!((packet.frame_len(), packet.missing()), (642, 642 - kept));
                    assert_eq!((packet.frame().len(), packet.payload().len()), (kept, kept - 42));
                })
                .done()
        });
        let packet = packet.unwrap();
        // The checksum was right, and its change is that of the address.
        let other = ethernet().ipv4("10.9.9.9", "10.0.0.2").udp(1, 2).payload(&[7; 600]).build().unwrap();
        assert_eq!(packet.data(), &other[..kept]);
    }
    // In a batch with truncated packets, other packets do not count as truncated.
    let mut batch = Batch::new();
    for kept in [100, frame.len(), 200] {
        assert!(batch.push(cut(&frame, kept, &pool)).is_ok());
    }
    let worker = Worker::new(0, 1, pool.clone());
    let function = |input: Input| input.inspect(|packet| assert_eq!(packet.frame_len(), 642)).done();
    compose(&worker, function).unwrap().process(0, &mut batch, &mut DetachedContext::new(pool.clone()));
    assert_eq!((batch.len(), batch.bytes()), (3, 3 * 642));
}

/// Segments that a live port passes on before a device cuts them.
///
/// For more than 64 KiB Linux states a length of 0 (BIG TCP).
#[test]
fn a_segment_left_to_a_device_may_say_no_length() {
    let pool = Pool::builder().frames(4).large(4, 1 << 18).build().unwrap();
    let v4 = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2).payload(&[7; 1_000]).build().unwrap();
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").tcp(1, 2).payload(&[7; 1_000]).build().unwrap();
    for (mut frame, length, headers, gso) in [(v4, 16, 54, GsoKind::TcpV4), (v6, 18, 74, GsoKind::TcpV6)] {
        frame.resize(200_000, 7);
        frame[length..length + 2].fill(0);
        let parse = |input: Input| {
            input
                .parse::<Link>()
                .parse::<Ip>()
                .parse::<Tcp>()
                .inspect(move |packet| assert_eq!(packet.payload().len(), 200_000 - headers))
                .done()
        };
        let packet = || {
            let mut packet = pool.allocate(frame.len()).unwrap();
            packet.data_mut().copy_from_slice(&frame);
            packet
        };
        assert_eq!(run(packet(), &pool, parse).map(|_| ()), Err(DropReason::Malformed));
        let mut offloaded = packet();
        offloaded.set_offload(Offload { gso, gso_size: 1_448, ..Offload::default() });
        assert!(run(offloaded, &pool, parse).is_ok());
        let mut captured = packet();
        captured.set_length_unstated(true);
        assert_eq!(run(captured, &pool, parse).unwrap().data(), frame);
    }
    assert!(LengthSlack::default().is_none());
}
