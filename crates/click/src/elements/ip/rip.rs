//! `RIPSend`: one route told again and again by RIP version 2 (RFC 2453).

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use super::encap::{Destination, Template, next, write_udp};
use super::header::{self, put};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{Prefix, SECOND};

pub(super) const CLASSES: &[Class] =
    &[Class::new("RIPSend", configure).ports("0/1").processing("h/h").flow("x/y")];

/// The time between two messages (RFC 2453, section 3.8).
const INTERVAL: u64 = 30 * SECOND;
/// The port of RIP.
const PORT: u16 = 520;
/// A response of version 2 with one route: header and entry (RFC 2453, sections 3.6 and 4).
const MESSAGE: usize = 4 + 20;
/// The metric that means "unreachable".
const INFINITY: u32 = 16;

/// `RIPSend(SRC, DST, PREFIX, METRIC)`: tells a route by RIP, every 30 seconds.
struct RipSend {
    template: Template,
    prefix: Prefix,
    metric: u32,
    id: Cell<u16>,
    count: Cell<u64>,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let source: Option<Ipv4Addr> = arguments.required("SRC");
    let destination: Option<Ipv4Addr> = arguments.required("DST");
    let prefix = arguments.required_with("PREFIX", |text, at| Prefix::read(text, at, false));
    let metric: Option<u32> = arguments.required("METRIC");
    arguments.complete()?;
    let metric = metric?;
    if !(1..=INFINITY).contains(&metric) {
        setup.errors.error("METRIC must be between 1 and 16");
        return None;
    }
    Some(Rc::new(RipSend {
        template: Template::new(header::UDP, source?, Destination::Fixed(destination?), 255),
        prefix: prefix?,
        metric,
        id: Cell::default(),
        count: Cell::default(),
    }))
}

impl Element for RipSend {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        at.timer_after(0, SECOND);
        true
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        at.timer_after(0, INTERVAL);
        let Some(mut packet) = at.allocate(header::LENGTH + 8 + MESSAGE) else { return };
        let network = u32::from(self.prefix.address) & u32::from(self.prefix.mask);
        let message = packet.data_mut();
        // Response, version 2; address family 2.
        put(message, header::LENGTH + 8, &[2, 2, 0, 0, 0, 2, 0, 0]);
        put(message, header::LENGTH + 16, &network.to_be_bytes());
        put(message, header::LENGTH + 20, &self.prefix.mask.octets());
        put(message, header::LENGTH + 28, &self.metric.to_be_bytes());
        self.template.write(&mut packet, next(&self.id));
        write_udp(&mut packet, [PORT, PORT], true);
        packet.set_timestamp(at.now());
        self.count.set(self.count.get() + 1);
        at.push(0, packet);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("count", |this: &Self, _| this.count.get());
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{build, run};

    #[test]
    fn routes_are_told_every_half_minute() {
        let run = run(
            "r::RIPSend(1.0.0.1, 1.0.0.255, 10.1.0.0/16, 3) -> ip::CheckIPHeader -> udp::CheckUDPHeader \
                       -> Strip(28) -> Print(r) -> Discard; Script(wait 62, stop)",
        );
        let message = "r:   24 | 02020000 00020000 0a010000 ffff0000 00000000 00000003";
        assert_eq!(run.said(), [message; 3]);
        assert_eq!(["ip.drops", "udp.drops", "r.count"].map(|name| run.read(name)), ["0", "0", "3"]);
        let errors = build("RIPSend(1.0.0.1, 1.0.0.255, 10.0.0.0/8, 17) -> Discard").errors;
        assert!(errors[1].contains("METRIC must be between 1 and 16"), "{errors:?}");
    }
}
