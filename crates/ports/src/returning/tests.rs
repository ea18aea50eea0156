use std::sync::atomic::AtomicUsize;

use netbricks_buffer::Pool;
use netbricks_core::{DetachedContext, DropReason as Reason, Node};
use std::os::fd::AsFd;

use super::*;
use crate::TransmitNode;
use crate::testing::*;

/// A memory port with an MTU, whose device may be gone.
struct Device {
    port: Box<dyn Port>,
    mtu: usize,
    link: Link,
}

impl Port for Device {
    fn driver(&self) -> &'static str {
        "device"
    }
    fn name(&self) -> &str {
        "under-test"
    }
    fn mtu(&self) -> usize {
        self.mtu
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { segmentation_offload: false, ..self.port.capabilities() }
    }
    fn link(&self) -> Link {
        self.link
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.port.counters()
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        self.port.take_receive(queue)
    }
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        self.port.take_transmit(queue)
    }
}

fn device(mtu: usize, link: Link, pool: &Pool) -> Box<dyn Port> {
    Box::new(Device { port: Box::new(collector(pool).0), mtu, link })
}

/// Waits until a condition holds, for at most half a minute.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within half a minute: {what}");
}

/// The number of packets of 4,000 bytes that `node` finds too big for its port.
fn too_big(node: &mut TransmitNode, pool: &Pool) -> u64 {
    let (mut batch, mut cx) = (Batch::new(), DetachedContext::new(pool.clone()));
    pool.allocate_written_into(&mut batch, 3, &[0; 4_000]);
    node.process(0, &mut batch, &mut cx);
    cx.take_drops().of(Reason::TooBig).packets
}

/// The MTU that counts is that of the device that is there now, not of the first of its name.
///
/// It is never larger than the port's settings say.
#[test]
fn a_device_that_returns_brings_its_own_mtu() {
    for (settings, refused) in [("", 0), ("mtu = 1400", 3)] {
        for shared in [false, true] {
            let pool = Pool::builder().frames(64).frame_size(8_192).build().unwrap();
            let directory = Directory::new("other-mtu");
            let again = {
                let pool = pool.clone();
                Box::new(move |_: &[Arc<Counters>]| Ok(device(9_000, Link::Up, &pool)))
            };
            // The loopback device exists on every machine.
            let port = returning(device(1_500, Link::Gone, &pool), "lo", Wanted::There, again).unwrap();
            let common = toml::from_str(settings).unwrap();
            let mut port = crate::wrap::wrap(port, &common, &context(&pool, &directory)).unwrap();
            let mut queue = port.take_transmit(0).unwrap();
            if shared {
                queue = Box::new(crate::SharedTransmit::new(queue, Arc::default()));
            }
            let limits = TransmitLimits { mtu: 1_400, ..TransmitLimits::of(port.as_ref()) };
            let mut node = TransmitNode::new(queue, "device", limits, Arc::default());
            until("it returned", || port.returned() == 1);
            assert_eq!(too_big(&mut node, &pool), refused, "{settings:?} {shared}");
            assert_eq!(port.mtu(), if refused == 0 { 9_000 } else { 1_400 });
        }
    }
}

/// A driver that panics while it opens the device is reported, and asked again.
#[test]
fn a_panic_while_opening_does_not_end_the_watch() {
    let pool = pool();
    let (calls, works) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let reopen = {
        let (calls, works, pool) = (calls.clone(), works.clone(), pool.clone());
        Box::new(move |_: &[Arc<Counters>]| {
            calls.fetch_add(1, Ordering::Relaxed);
            assert!(works.load(Ordering::Relaxed), "not yet");
            Ok(device(1_500, Link::Up, &pool))
        })
    };
    let port = returning(device(1_500, Link::Gone, &pool), "lo", Wanted::There, reopen).unwrap();
    until("it says so", || port.warnings().iter().any(|warning| warning.contains("panicked: not yet")));
    assert_eq!(port.returned(), 0);
    works.store(true, Ordering::Relaxed);
    until("it returned", || port.returned() == 1);
    assert!(calls.load(Ordering::Relaxed) >= 2);
    until("all is well", || port.warnings().is_empty());
}

/// A queue with several pipes to watch.
struct Piped(Vec<OwnedFd>);

impl ReceiveQueue for Piped {
    fn receive(&mut self, _: &mut Batch, _: &mut Context) -> Poll {
        Poll::Idle
    }
    fn descriptors<'q>(&'q self, watch: &mut dyn FnMut(BorrowedFd<'q>)) {
        self.0.iter().for_each(|pipe| watch(pipe.as_fd()));
    }
}

/// A worker watches the descriptors of the current queue, and the bell for the next one.
///
/// A queue without any descriptor is polled again and again, with or without the bell.
#[test]
fn a_worker_watches_the_queue_and_the_bell() {
    use std::os::fd::AsRawFd;
    let descriptor = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let watched = |receiver: &Receiver| {
        let mut all = Vec::new();
        receiver.descriptors(&mut |descriptor| all.push(descriptor.as_raw_fd()));
        all
    };
    let seat = Arc::new(Seat::<dyn ReceiveQueue>::new(Some(descriptor())));
    let bell = seat.bell().unwrap().as_raw_fd();
    let pipes = |count: usize| -> (Box<dyn ReceiveQueue>, Vec<i32>) {
        let pipes: Vec<_> = (0..count).map(|_| descriptor()).collect();
        let numbers = pipes.iter().map(AsRawFd::as_raw_fd).collect();
        (Box::new(Piped(pipes)), numbers)
    };
    let (queue, numbers) = pipes(2);
    let mut receiver = Receiver { queue, seat: Arc::clone(&seat) };
    assert_eq!(watched(&receiver), [numbers[0], numbers[1], bell]);
    let pool = pool();
    let (mut batch, mut cx) = (Batch::new(), DetachedContext::new(pool));
    for count in [1, 3, 0] {
        let (queue, mut numbers) = pipes(count);
        seat.offer(queue);
        assert!(matches!(receiver.receive(&mut batch, &mut cx), Poll::Busy));
        if count > 0 {
            numbers.push(bell);
        }
        assert_eq!(watched(&receiver), numbers);
    }
}

/// A queue that is offered while the one before is taken is taken too.
#[test]
fn a_queue_that_is_offered_while_another_is_taken_is_not_forgotten() {
    const OFFERS: u32 = 20_000;
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let seat = Seat::<u32>::new(Some(bell));
    let rings = |seat: &Seat<u32>| {
        let mut bells =
            [rustix::event::PollFd::from_borrowed_fd(seat.bell().unwrap(), rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut bells, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap()
            == 1
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (1..=OFFERS).for_each(|number| seat.offer(Box::new(number))));
        let mut last = 0;
        while last < OFFERS {
            let agree = seat.change(|next| next.is_some() == seat.waits());
            assert!(agree, "one waits, and `waits` does not say so");
            if seat.waits() {
                let taken = seat.take().map_or(last, |number| *number);
                assert!(taken > last, "one was taken that was not there");
                last = taken;
            }
            if last == OFFERS {
                assert!(!rings(&seat), "nothing waits, and it wakes its worker for ever");
            }
        }
    });
    assert!(!seat.waits());
}
